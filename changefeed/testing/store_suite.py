"""What every store promises, as tests over the fixture ``connect``, which opens one more client
to the same records each time. Nothing here depends on time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest
from msgspec.structs import replace

from changefeed.stores.store import MAX_BODY, WHOLE, Listed, Record, Store

ConnectStore = Callable[[], Awaitable[Store]]
"""Makes one more client to the same records; it is closed with the store."""

NEW = Record(kind="lease", key="r0", body=b'{"n":0}', position="at 0")
HOST = Record(kind="host", key="a", body=b'{"n":0}')
GARBAGE = ["nonsense", "9999999", "[]", "ü\0", "v" * 4096]
ODD = ["", "r0/../ü", "a?b#c\\d", "\0", "'\"`", " ", "k" * 4096, "\N{GRINNING FACE}"]
_TURNS = 40


async def inserted(store: Store, record: Record = NEW) -> Record:
    written = await store.put(record)
    assert written is not None, f"{record} was not inserted"
    return written


def unversioned(record: Record | None) -> Record | None:
    return None if record is None else replace(record, version="")


class ListingReader:
    """What a reader knows that lists what was written since its last listing."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.records: dict[tuple[str, str], Record] = {}
        self.total: int | None = None
        self._token = WHOLE

    async def look(self, store: Store) -> None:
        listed = await store.list(self.kinds, self._token)
        if not self._token:
            self.records = {}
        self.records |= {(x.kind, x.key): x for x in listed.records}
        self._token, self.total = listed.token, listed.total


async def whole(store: Store, *kinds: str) -> dict[tuple[str, str], Record]:
    listed = await store.list(kinds)
    assert listed.total in (None, len(listed.records)), f"{listed.total} in all: {listed}"
    found = {(x.kind, x.key): x for x in listed.records}
    assert len(found) == len(listed.records), f"listed twice: {listed}"
    return found


# One record


async def test_what_was_put_comes_back_whole(connect: ConnectStore) -> None:
    one, other = await connect(), await connect()
    assert await one.get("lease", "r0") is None
    written = await inserted(one)
    assert unversioned(written) == NEW
    assert await other.get("lease", "r0") == written
    changed = await other.put(replace(written, body=b'{"n":1}', position="at 1"))
    assert changed is not None
    assert (changed.body, changed.position) == (b'{"n":1}', "at 1")
    assert changed.version not in ("", written.version)
    assert await one.get("lease", "r0") == changed


@pytest.mark.parametrize("text", ODD)
async def test_keys_and_positions_are_any_text(connect: ConnectStore, text: str) -> None:
    store = await connect()
    one = await inserted(store, replace(NEW, key=text, position=text))
    other = await inserted(store, replace(NEW, key=f"{text}2"))
    assert await store.get("lease", text) == one
    assert set(await whole(store, "lease")) == {("lease", text), ("lease", f"{text}2")}
    assert await store.delete("lease", text, one.version)
    assert await store.get("lease", f"{text}2") == other


async def test_a_body_may_be_as_large_as_is_promised(connect: ConnectStore) -> None:
    store = await connect()
    large = b'{"n":"' + b"x" * (MAX_BODY - 8) + b'"}'
    written = await inserted(store, replace(NEW, body=large, position="p" * 10_000))
    assert await store.get("lease", "r0") == written
    assert written.body == large


async def test_records_of_different_kinds_do_not_know_each_other(connect: ConnectStore) -> None:
    store = await connect()
    lease, host = await inserted(store), await inserted(store, replace(HOST, key="r0"))
    assert await store.get("lease", "r0") == lease
    assert await store.get("host", "r0") == host
    assert not await store.delete("host", "r0", lease.version + "0")
    assert await store.delete("host", "r0", host.version)
    assert await store.get("lease", "r0") == lease


# Exactly one writer wins


async def test_a_put_in_another_version_is_refused_and_changes_nothing(
    connect: ConnectStore,
) -> None:
    store = await connect()
    first = await inserted(store)
    second = await store.put(replace(first, body=b'{"n":1}'))
    assert second is not None
    for version in (first.version, *GARBAGE):
        stale = Record(kind="lease", key="r0", body=b"{}", position="late", version=version)
        assert await store.put(stale) is None
        assert await store.put(replace(stale, position=None)) is None
    assert await store.get("lease", "r0") == second


async def test_an_insert_is_refused_where_there_is_a_record_and_an_update_where_there_is_none(
    connect: ConnectStore,
) -> None:
    store = await connect()
    first = await inserted(store)
    assert await store.put(replace(NEW, body=b'{"n":1}')) is None
    assert await store.get("lease", "r0") == first
    for version in (first.version, *GARBAGE):
        assert await store.put(replace(NEW, key="r1", version=version)) is None
    assert await store.get("lease", "r1") is None


async def test_a_delete_in_another_version_is_refused(connect: ConnectStore) -> None:
    store = await connect()
    first = await inserted(store)
    second = await store.put(replace(first, body=b'{"n":1}'))
    assert second is not None
    for version in ("", first.version, *GARBAGE):
        assert not await store.delete("lease", "r0", version)
    assert await store.get("lease", "r0") == second
    assert await store.delete("lease", "r0", second.version)
    assert await store.get("lease", "r0") is None
    assert not await store.delete("lease", "r0", second.version)
    assert await whole(store, "lease") == {}


async def test_a_version_is_never_used_again(connect: ConnectStore) -> None:
    store = await connect()
    first = await inserted(store)
    assert await store.delete("lease", "r0", first.version)
    again = await inserted(store)
    assert again.version != first.version
    assert await store.put(replace(first, body=b"{}")) is None
    assert not await store.delete("lease", "r0", first.version)
    assert await store.get("lease", "r0") == again


async def test_of_many_writers_of_one_version_one_wins(connect: ConnectStore) -> None:
    clients = [await connect() for _ in range(3)]
    first = await inserted(clients[0])

    async def write(n: int) -> Record | None:
        wanted = replace(first, body=b'{"n":%d}' % n, position=f"at {n}")
        return await clients[n % 3].put(wanted)

    (won,) = [x for x in await asyncio.gather(*map(write, range(12))) if x is not None]
    for client in clients:
        assert await client.get("lease", "r0") == won


# The position


async def test_a_put_without_a_position_leaves_the_stored_one_alone(
    connect: ConnectStore,
) -> None:
    store = await connect()
    first = await inserted(store)
    second = await store.put(replace(first, body=b'{"n":1}', position=None))
    assert second is not None
    assert (second.body, second.position) == (b'{"n":1}', "at 0")
    assert await store.get("lease", "r0") == second
    bare = await inserted(store, HOST)
    assert bare.position is None
    beaten = await store.put(replace(bare, body=b'{"n":1}'))
    assert beaten is not None
    assert beaten.position is None
    moved = await store.put(replace(beaten, position="at 1"))
    assert moved is not None
    assert moved == await store.get("host", "a")
    assert moved.position == "at 1"


async def test_body_and_position_are_of_one_write(connect: ConnectStore) -> None:
    """Also for who reads while it is written, and where the writer is cancelled."""
    writer, reader = await connect(), await connect()
    await inserted(writer, replace(NEW, body=b'{"n":0}', position="0"))
    done = asyncio.Event()

    async def write() -> None:
        for n in range(1, _TURNS):
            stored = await writer.get("lease", "r0")
            assert stored is not None
            wanted = replace(stored, body=b'{"n":%d}' % n, position=str(n))
            putting = asyncio.ensure_future(writer.put(wanted))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            if n % 3 == 0:
                putting.cancel()
            with suppress(asyncio.CancelledError):
                await putting
        done.set()

    async def read() -> None:
        while not done.is_set():
            found = await reader.get("lease", "r0")
            assert found is not None
            assert found.body == b'{"n":%s}' % str(found.position).encode(), found
            await asyncio.sleep(0)

    await asyncio.gather(write(), read(), read())


# Listings


async def test_a_listing_has_all_records_of_its_kinds_without_positions(
    connect: ConnectStore,
) -> None:
    store = await connect()
    assert await whole(store, "lease", "host") == {}
    put = [await inserted(store, replace(NEW, key=f"r{n}")) for n in range(5)]
    put.append(await inserted(store, HOST))
    await inserted(store, replace(NEW, kind="letter"))
    bare = {(x.kind, x.key): replace(x, position=None) for x in put}
    assert await whole(store, "lease", "host") == bare
    assert await whole(store, "host") == {("host", "a"): put[-1]}


async def test_a_listing_since_a_token_shows_every_write(connect: ConnectStore) -> None:
    store, other = await connect(), await connect()
    known = ListingReader("lease", "host")

    async def agree() -> None:
        await known.look(store)
        assert known.records == await whole(other, "lease", "host")
        assert known.total in (None, len(known.records))

    await agree()
    lease = await inserted(other)
    await agree()
    host = await inserted(other, HOST)
    await agree()
    await agree()
    lease = await other.put(replace(lease, body=b'{"n":1}')) or lease
    await inserted(other, replace(NEW, key="r1"))
    await agree()
    assert await other.delete("host", "a", host.version)
    await known.look(store)
    assert known.total in (None, len(known.records) - 1)  # a delete shows by the count
    again = await inserted(other, HOST)
    await agree()
    assert known.records["host", "a"] == again


async def test_a_listing_since_a_token_misses_no_write_of_others_at_that_time(
    connect: ConnectStore,
) -> None:
    store, clients = await connect(), [await connect() for _ in range(3)]
    known, writing = ListingReader("lease"), True

    async def write(n: int) -> None:
        for turn in range(_TURNS // 2):
            await inserted(clients[n % 3], replace(NEW, key=f"r{n}-{turn}"))
            await asyncio.sleep(0)

    async def look() -> None:
        while writing:
            await known.look(store)
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    await asyncio.gather(*map(write, range(6)))
    writing = False
    await looking
    await known.look(store)
    assert known.records == await whole(clients[0], "lease")


async def test_a_listing_writes_the_record_that_goes_along(connect: ConnectStore) -> None:
    store = await connect()
    lease = await inserted(store)
    first = await store.list(("lease", "host"), WHOLE, HOST)
    written = first.put
    assert written is not None
    assert unversioned(written) == HOST
    assert of(first) == {("lease", "r0"): replace(lease, position=None), ("host", "a"): written}
    assert first.total in (None, 2)
    for n in count(1):
        beaten = replace(written, body=b'{"n":%d}' % n)
        listed = await store.list(("lease", "host"), first.token, beaten)
        assert listed.put == await store.get("host", "a")
        assert listed.put in listed.records
        assert listed.total in (None, 2)
        if n == 3:
            break
        assert listed.put is not None
        first, written = listed, listed.put


async def test_a_listing_is_answered_where_the_record_that_goes_along_is_refused(
    connect: ConnectStore,
) -> None:
    store = await connect()
    stale = await inserted(store, HOST)
    fresh = await store.put(replace(stale, body=b'{"n":1}'))
    assert fresh is not None
    for late in (stale, HOST, replace(HOST, version="nonsense")):
        listed = await store.list(("host",), WHOLE, replace(late, body=b'{"n":2}'))
        assert listed.put is None
        assert list(listed.records) == [fresh]
    assert await store.get("host", "a") == fresh


def of(listed: Listed) -> dict[tuple[str, str], Record]:
    return {(x.kind, x.key): x for x in listed.records}
