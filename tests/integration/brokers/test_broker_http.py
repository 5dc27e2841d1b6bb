"""A broker over real HTTP: what it takes, what it refuses, and that a refusal wrote nothing."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from changefeed import Record
from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import Feed, FeedRange, Position, RangeEnded, RangeId
from changefeed.log.brokers.core import BrokerCore, CoreStatus
from changefeed.log.catalog.catalog import Truncation
from changefeed.log.client import connection
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.client import BrokerClient
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.client.producer import open_brokers_producer
from changefeed.log.format.block_format import Layout, lay_out
from changefeed.log.maintenance.retention import with_truncations
from changefeed.log.protocol.messages import Answer, AppendReceipt, AppendRejection, Batch
from changefeed.log.protocol.wire import CONTENT_TYPE, encode_append
from changefeed.log.records import encode_record
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.listening import take_port
from changefeed.runtime.secret import Secret
from changefeed.runtime.web_server import WebLimits, serving
from tests.support.broker_cluster import ACCESS, COLLECTION, TOKEN, address_of, broker
from tests.support.brokers import request
from tests.support.processes import PATIENCE


@dataclass(frozen=True)
class Given:
    core: BrokerCore
    store: MemoryStore
    address: str

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1/collections/{COLLECTION}"

    async def asks(
        self, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {"Authorization": f"Bearer {TOKEN}", **headers}
        async with (
            aiohttp.ClientSession() as session,
            session.request(verb, self.url + path, data=body, headers=sent) as answer,
        ):
            return answer.status, msgspec.json.decode(await answer.read())

    @property
    def written(self) -> list[str]:
        return [x for x in self.store.objects if x.startswith("wal/")]


@pytest.fixture
async def given() -> AsyncIterator[Given]:
    store = MemoryStore()
    async with broker(store) as (core, address):
        await core.catalogs.create(COLLECTION, parts=2)
        yield Given(core, store, address)


def batch(columns: Layout | None = None, **other: Any) -> Batch:
    laid = lay_out([encode_record(Record(key="k", body=b"1"), 7)])
    fields = {"partition": RangeId("e1.p01.v00-ff"), "count": 1, "columns": columns or laid}
    return Batch(**{**fields, **other})


def body(*batches: Batch, **other: Any) -> bytes:
    return encode_append(request(*batches, **other))


RECORDS = {"Content-Type": CONTENT_TYPE}
LAID = lay_out([encode_record(Record(key="k", body=b"1"), 7)])
HUGE = LAID._replace(bodies=bytes(17 << 20), body_sizes=(17 << 20).to_bytes(4, "little"))
"""A record that is larger than any may be."""


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "bad-body"),
        (b"gibberish and more of it", "bad-body"),
        (body(), "refused"),
        (body(batch())[:-1], "bad-body"),
        (body(batch(), batch()), "refused"),  # one range twice
        (body(batch(count=2)), "refused"),
        (body(batch(count=0)), "refused"),
        (body(batch(), number=0), "refused"),
        (body(batch(), producer=""), "refused"),
        (body(batch(), producer="a b"), "refused"),
        (body(batch(LAID._replace(keys=b"\xff"))), "refused"),
        (body(batch(LAID._replace(kinds=b"\x07"))), "refused"),
        (body(batch(LAID._replace(times=b""))), "refused"),
        (body(batch(LAID._replace(times=(2**62).to_bytes(8, "little")))), "refused"),
        (body(batch(LAID._replace(times=b"\xff" * 7 + b"\x80"))), "refused"),
        (body(batch(HUGE)), "refused"),
        (body(batch(LAID._replace(ids=b"more"))), "refused"),
        (body(batch(), batch(partition=RangeId("e1.p02.v00-ff"), count=9)), "refused"),
    ],
    ids=lambda x: str(x)[:80],
)
async def test_a_body_that_is_wrong_is_refused_whole_and_nothing_is_written(
    given: Given, sent: bytes, error: str
) -> None:
    before = given.written
    status, said = await given.asks("POST", "/records", BytesIO(sent), **RECORDS)
    assert (status, said["error"]) == (400, error)
    assert said["message"]
    assert given.written == before


@pytest.mark.parametrize(
    ("verb", "path", "sent", "status", "error"),
    [
        ("POST", "/records", b"{}", 415, "http"),
        ("POST", "/records?log=another", b"", 409, "http"),
        ("GET", "/partitions/e1.p01.v00-ff/records?log=another", None, 409, "http"),
        ("GET", "/partitions/e9.p01.v00-ff/records", None, 404, "unknown-partition"),
        ("GET", "/partitions/e1.p01.v00-ff/records?after=-1", None, 400, "refused"),
        ("GET", "/partitions/e1.p01.v00-ff/records?after=x", None, 400, "refused"),
        ("GET", "/partitions/e1.p01.v00-ff/records?wait=nan", None, 400, "refused"),
        ("GET", "/partitions/e1.p01.v00-ff/since", None, 400, "refused"),
        ("GET", "/partitions/e1.p01.v00-ff/since?time_us=soon", None, 400, "refused"),
        ("GET", f"/partitions/e1.p01.v00-ff/since?time_us={2**63}", None, 400, "refused"),
        ("GET", "-of-nothing", None, 400, "refused"),
        ("GET", "/nowhere", None, 404, "http"),
        ("PUT", "", b'{"parts": 3}', 400, "refused"),
        ("PUT", "-2", b'{"parts": 0}', 400, "refused"),
        ("PUT", "-2", b'{"prats": 3}', 400, "bad-body"),
        ("PUT", "-A B", b"{}", 400, "refused"),
        ("POST", "/split", b'{"partition": "nowhere"}', 404, "unknown-partition"),
        ("POST", "/merge", b"[", 400, "bad-body"),
        ("POST", "/retain", b'{"seconds": -1}', 400, "refused"),
        ("GET", "/storage?log=another", None, 409, "http"),
        ("POST", "/ends", b'{"e1.p01.v00-ff": "1"}', 400, "bad-body"),
        ("POST", "/ends", b"{}", 400, "refused"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_a_reason_and_changes_nothing(  # noqa: PLR0917
    given: Given, verb: str, path: str, sent: bytes | None, status: int, error: str
) -> None:
    catalog, before = given.core.catalog.number, given.written
    headers = RECORDS if "log=" in path else {}
    found, said = await given.asks(verb, path, sent, **headers)
    assert (found, said["error"]) == (status, error)
    assert said["message"]
    assert (given.core.catalog.number, given.written) == (catalog, before)


async def test_what_is_gone_and_what_never_was_is_out_of_range_and_the_text_says_which(
    given: Given,
) -> None:
    status, _ = await given.asks("POST", "/records", BytesIO(body(batch())), **RECORDS)
    assert status == 200
    gone = {RangeId("e1.p01.v00-ff"): Truncation(1, 1)}
    await given.core.catalogs.split(COLLECTION)
    async with asyncio.timeout(PATIENCE):
        while given.core.status().era < 2:
            await given.core.writer.changed.wait()
    await given.core.catalogs.change_collection(COLLECTION, lambda x: with_truncations(x, gone))
    one = "/partitions/e1.p01.v00-ff/records"
    status, said = await given.asks("GET", f"{one}?after=0")
    assert (status, said["error"]) == (416, "out-of-range")
    assert "deleted by retention" in said["message"]
    status, said = await given.asks("GET", f"{one}?after=7")
    assert (status, said["error"]) == (416, "out-of-range")
    assert "lies behind the end" in said["message"]
    async with BrokersFeed.open(address_of(given.address), ACCESS) as feed:
        r = (await feed.ranges())[0].id
        for after in (0, 7):
            with pytest.raises(RangeRefused):
                await feed.read(FeedRange(id=r), feed._position(after), 10)


async def test_a_body_larger_than_any_is_refused(given: Given) -> None:
    status, said = await given.asks("POST", "/records", BytesIO(bytes(33 << 20)), **RECORDS)
    assert (status, said["error"]) == (413, "http")


async def test_a_body_is_no_longer_than_it_says_before_it_is_read(given: Given) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield body(batch())

    status, said = await given.asks("POST", "/records", pieces(), **RECORDS)
    assert (status, said["error"]) == (411, "http")
    bomb = gzip.compress(bytes(1 << 20))
    headers = {"Content-Encoding": "gzip", **RECORDS}
    status, said = await given.asks("POST", "/records", bomb, **headers)
    assert (status, said["error"]) == (400, "refused")


async def test_bodies_that_are_held_take_no_more_than_there_is_memory_for(
    given: Given,
) -> None:
    size = given.core.settings.buffer_bytes // 2 - 1000
    host, port = given.address.split(":")
    head = (
        f"POST /v1/collections/{COLLECTION}/records HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )

    async def answer(reader: asyncio.StreamReader) -> bytes:
        try:
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 1)
        except TimeoutError:
            return b"none yet"

    clients = [await asyncio.open_connection(host, port) for _ in range(8)]
    for _, writer in clients:
        writer.write(head.encode() + bytes(100_000))
    answers = await asyncio.gather(*(answer(reader) for reader, _ in clients))
    assert answers.count(b"none yet") == 2
    assert all(x.startswith(b"HTTP/1.1 429") for x in answers if x != b"none yet")
    assert sum(b"Retry-After: 1" in x for x in answers) == 6
    assert (await given.asks("POST", "/records", body(batch()), **RECORDS))[0] == 200
    for _, writer in clients:
        writer.close()
    async with (
        asyncio.timeout(PATIENCE),
        open_brokers_producer(address_of(given.address), ACCESS) as producer,
    ):
        await producer.send_many([Record(key="k", body=bytes(15 << 20))] * 4)


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "\x80é"])
async def test_without_the_token_nothing_is_answered_but_health(
    given: Given, token: str
) -> None:
    status, said = await given.asks("GET", "", Authorization=token)
    assert (status, said["error"]) == (401, "http")
    for path in ("livez", "readyz", "metrics"):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{given.address}/{path}") as answer,
        ):
            assert answer.status == 200
    wrong = BrokerAccess(token=Secret.of("wrong"))
    with pytest.raises(FeedRefused, match="BROKERS__TOKEN"):
        async with BrokersFeed.open(address_of(given.address), wrong):
            pass


async def test_a_broker_that_takes_the_question_and_does_not_answer_is_given_up() -> None:
    impatient = BrokerAccess(token=Secret.of(TOKEN), call_timeout=0.05)
    with take_port("127.0.0.1", 0) as listening:  # the kernel accepts, and nobody reads
        silent = address_of(f"127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(FeedUnavailable, match=r"did not answer within 0\.05 s"):
            async with BrokersFeed.open(silent, impatient):
                pass


async def test_any_bytes_are_answered_with_a_refusal_and_the_broker_goes_on(
    given: Given,
) -> None:
    random = Random(7)
    good = body(batch())
    for _ in range(150):
        sent = bytearray(good)
        for _ in range(random.randint(1, 4)):
            sent[random.randrange(len(sent))] = random.randrange(256)
        status, _ = await given.asks("POST", "/records", bytes(sent), **RECORDS)
        assert status in (200, 400)
    status, answer = await given.asks(
        "POST", "/records", body(batch(), producer="fresh"), **RECORDS
    )
    assert (status, answer["type"]) == (200, "AppendReceipt")


async def append_once_open(client: BrokerClient, url: str, log: str) -> Answer:
    """Append a batch; its partition is open a moment after the collection was made."""
    async with asyncio.timeout(PATIENCE):
        answer = await client.append(url, log, request(batch()), catalog=0, seconds=5)
        while isinstance(answer, AppendRejection) and answer.reason == "moving":
            await asyncio.sleep(answer.retry_after)
            answer = await client.append(url, log, request(batch()), catalog=0, seconds=5)
    return answer


async def test_numbers_of_another_producer_with_the_same_id_are_answered_as_taken(
    given: Given,
) -> None:
    async with open_brokers_producer(address_of(given.address), ACCESS) as first:
        first._sender._id = "twin"
        await first.send_many([Record(key=f"k{n}", body=b"1") for n in range(9)])
        before = given.written
        async with open_brokers_producer(address_of(given.address), ACCESS) as second:
            second._sender._id = "twin"
            with pytest.raises(FeedRefused, match="same id"):
                await second.send_many([Record(key=f"k{n}", body=b"2") for n in range(9)])
            assert given.written == before
            await second.send("k1", 3)  # numbered from 1 again
        with pytest.raises(FeedRefused, match="same id"):
            await first.send("k1", 4)
    async with BrokersFeed.open(address_of(given.address), ACCESS) as feed:
        assert await values(feed) == {**{f"k{n}": [1] for n in range(9)}, "k1": [1, 3]}


async def values(feed: Feed) -> dict[str, list[int]]:
    """Read all ranges to their ends, parents first."""
    found: dict[str, list[int]] = {}
    for r in await feed.ranges():
        after = await feed.start(r, "beginning")
        try:
            while (page := await feed.read(r, after, 100)).changes:
                after = page.position
                for change in page.changes:
                    found.setdefault(change.key, []).append(change.value())
        except RangeEnded:
            continue
    return found


async def test_a_read_waits_for_a_change_and_has_it_at_once(given: Given) -> None:
    at = address_of(given.address)
    access = BrokerAccess(token=Secret.of(TOKEN), wait=30.0)
    async with BrokersFeed.open(at, access) as feed, open_brokers_producer(at, ACCESS) as p:
        await p.send("k", 1)
        starts = {x.id: await feed.start(x, "beginning") for x in await feed.ranges()}
        (range_id,) = [
            x for x, start in starts.items() if await lag_of(feed, FeedRange(id=x), start)
        ]
        now = await feed.start(FeedRange(id=range_id), "now")
        reading = asyncio.create_task(feed.read(FeedRange(id=range_id), now, 10))
        await asyncio.sleep(0.1)
        assert not reading.done()
        await p.send("k", 2)
        async with asyncio.timeout(20):
            assert [x.value() for x in (await reading).changes] == [2]


async def test_positions_of_another_cluster_are_refused(given: Given) -> None:
    async with BrokersFeed.open(address_of(given.address), ACCESS) as feed:
        (r, *_) = await feed.ranges()
        with pytest.raises(RangeRefused, match="another log"):
            await feed.read(r, Position("00000000/3"), 10)


async def test_the_topology_is_shown_as_soon_as_there_is_a_newer_one(given: Given) -> None:
    loop = asyncio.get_running_loop()
    known = given.core.catalog.number
    began = loop.time()
    status, shown = await given.asks("GET", f"?newer_than={known}&wait=0.2")
    assert (status, shown["catalog"]) == (200, known)
    assert loop.time() - began >= 0.2
    waiting = asyncio.create_task(given.asks("GET", f"?newer_than={known}&wait=30"))
    await asyncio.sleep(0.1)
    await given.core.catalogs.split(COLLECTION)
    status, shown = await waiting
    assert (status, shown["catalog"] > known) == (200, True)
    assert loop.time() - began < 20


async def test_an_answer_that_does_not_end_is_read_no_further_than_any_has_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(bytes(64 * 1024))
            sent += 64 * 1024

    monkeypatch.setattr(connection, "MAX_ANSWER", 1024 * 1024)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", endless)
    with take_port("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        async with (
            serving(app, WebLimits(shutdown=0.1), listening),
            BrokerClient.open(address_of(f"127.0.0.1:{port}"), ACCESS) as client,
        ):
            with pytest.raises(FeedRefused, match="no broker"):
                await client.routes()
    assert sent < 16 * 1024 * 1024


async def test_no_broker_at_the_address_is_unavailable_and_a_stranger_is_refused(
    given: Given,
) -> None:
    nowhere = address_of("127.0.0.1:1")
    with pytest.raises(FeedUnavailable, match=r"127\.0\.0\.1:1"):
        async with BrokersFeed.open(nowhere, ACCESS):
            pass
    both = address_of("127.0.0.1:1", given.address)
    async with BrokersFeed.open(both, ACCESS) as feed:
        assert len(await feed.ranges()) == 2


async def test_a_broker_that_does_not_reach_its_store_sends_clients_to_the_others(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("no route to the store")

    with monkeypatch.context() as cut:
        for call in ("get", "newer", "put", "replace", "create", "list"):
            cut.setattr(given.store, call, away)
        assert (await given.asks("GET", ""))[0] == 200  # nobody has taken its place yet
        await asyncio.sleep(given.core.settings.expiration + 0.2)
        for path in ("", "/partitions/e1.p01.v00-ff/records?after=0"):
            status, said = await given.asks("GET", path)
            assert (status, said["error"]) == (503, "store")
            assert "ask another broker" in said["message"]
    async with asyncio.timeout(PATIENCE):
        while (await given.asks("GET", ""))[0] != 200:  # noqa: ASYNC110 - it may come at any time
            await asyncio.sleep(0.05)


async def test_appends_and_reads_do_not_look_at_every_partition_there_ever_was(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerClient.open(address_of(given.address), ACCESS) as client:
        routes = await client.routes()
        monkeypatch.setattr(given.core, "shown", None)  # what would look at them
        answer = await append_once_open(client, routes.urls[0], routes.identity)
        assert isinstance(answer, AppendReceipt)
        found = await client.read(RangeId("e1.p01.v00-ff"), after=0, most=1000, wait=0.0)
        assert [x.count for x in found.blocks] == [1]


async def test_a_client_goes_by_the_newest_routes_of_the_collection_that_it_found_first(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerClient.open(address_of(given.address), ACCESS) as client:
        known = (await client.routes()).topology
        newest, looks = replace(known, catalog=known.catalog + 9), AsyncMock()
        others = replace(newest, catalog=0, eras=()), replace(newest, identity="b" * 32)
        for said, found in [(newest, newest), (others[0], newest), (others[1], others[1])]:
            monkeypatch.setattr(given.core, "shown", lambda _, said=said: said)
            assert (await client.routes()).topology == found
            assert (await client.end(RangeId("e1.p01.v00-ff"))).last == 0
            monkeypatch.setattr(given.core.catalogs, "refresh", looks)
        assert looks.await_count == 2  # the broker knows an older catalog than its client


async def test_a_broker_says_how_much_is_stored_and_what_it_is_doing(given: Given) -> None:
    async with BrokerClient.open(address_of(given.address), ACCESS) as client:
        routes = await client.routes()
        answer = await append_once_open(client, routes.urls[0], routes.identity)
        assert isinstance(answer, AppendReceipt)
        storage = await client.storage(routes.identity)
        assert [x.bytes > 0 for x in storage.ranges] == [True, False]
        assert [x.id for x in storage.producers] == ["p"]
        assert storage.flushes == 1
        assert (await client.status(routes.urls[0], CoreStatus)).writing


async def test_a_broker_that_is_asked_to_compacts_all_that_it_can(given: Given) -> None:
    partition = given.core.ranges.of(COLLECTION).open[0].id
    for n in range(1, 131):
        columns = lay_out([encode_record(Record(key=f"k{n}", body=b"1"), n)])
        one = request(Batch(partition=partition, count=1, columns=columns), number=n)
        while not isinstance(await given.core.append(COLLECTION, one), AppendReceipt):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # it is not open yet
    status, made = await given.asks("POST", "/compact")
    assert status == 200
    assert made == made | {"ended": True, "objects": 128, "records": 128, "failed": 0}
    assert len([x for x in given.store.objects if x.startswith("compacted/")]) == 1
    status, made = await given.asks("POST", "/compact")
    assert (status, made["objects"]) == (200, 0)


async def test_all_who_come_at_once_while_a_broker_is_busy_get_their_answers(
    given: Given,
) -> None:
    host, _, port = given.address.partition(":")
    with ExitStack() as stack:
        clients = [  # made on the loop, which therefore accepts nobody
            stack.enter_context(socket.create_connection((host, int(port)), timeout=0.5))
            for _ in range(300)
        ]
        for x in clients:
            x.settimeout(PATIENCE)
            x.sendall(b"GET /livez HTTP/1.1\r\nHost: broker-1\r\n\r\n")
        for x in clients:
            assert await asyncio.to_thread(x.recv, 15) == b"HTTP/1.1 200 OK"
