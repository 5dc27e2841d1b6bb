"""Object stores keep their promises: one suite for each that needs no server."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from aiohttp import web

from changefeed.feeds.errors import FeedRefused
from changefeed.log.errors import answers_of_feeds
from changefeed.log.stores.addresses import open_store
from changefeed.log.stores.local_store import LocalStore
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.remote_store import RemoteStore
from changefeed.log.stores.store import MISSING, ObjectStore, create_once, holds
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.listening import address_of, take_port
from changefeed.runtime.web_server import WebLimits, serving

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["memory", "local", "obstore"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return LocalStore(tmp_path / "cluster")
    obstore = pytest.importorskip("obstore.store")
    return RemoteStore(obstore.MemoryStore(), "memory")


@pytest.mark.parametrize("key", ["a/b/1", "wal/00000001/b/000000000001"])
async def test_an_object_is_created_once_and_its_writer_finds_out_that_it_was(
    store: ObjectStore, key: str
) -> None:
    assert await holds(store, key, b"first") is None
    assert await store.create(key, b"first")
    assert not await store.create(key, b"second")
    assert await store.get(key) == b"first"
    for ask in (create_once, holds):
        assert [await ask(store, key, x) for x in (b"first", b"second")] == [True, False]


async def test_one_of_many_creates_it(store: ObjectStore) -> None:
    tries = [store.create("a/1", str(n).encode()) for n in range(20)]
    created = await asyncio.gather(*tries)
    assert created.count(True) == 1
    assert await store.get("a/1") == str(created.index(True)).encode()


async def test_put_writes_in_the_place_of_what_is_there(store: ObjectStore) -> None:
    await store.put("a", b"first")
    await store.put("a", b"second")
    assert await store.get("a") == b"second"


async def test_one_version_is_replaced_once(store: ObjectStore) -> None:
    assert await store.newer("a", MISSING) is None
    first = await store.replace("a", b"first", MISSING)
    assert first is not None
    assert await store.replace("a", b"second", MISSING) is None
    tries = await asyncio.gather(
        *(store.replace("a", str(n).encode(), first) for n in range(20))
    )
    (won,) = (n for n, version in enumerate(tries) if version is not None)
    assert await store.newer("a", first) == (str(won).encode(), tries[won])
    assert await store.newer("a", str(tries[won])) is None
    await store.delete(["a"])
    assert await store.newer("a", first) == (b"", MISSING)
    assert await store.replace("a", b"again", str(tries[won])) is None
    assert await store.get("a") is None


async def test_a_client_that_cannot_replace_one_version_says_what_the_store_must_know(
    tmp_path: Path,
) -> None:
    obstore = pytest.importorskip("obstore.store")
    store = RemoteStore(obstore.LocalStore(tmp_path), "one without")
    first = await store.replace("a", b"first", MISSING)
    assert first is not None
    with pytest.raises(StoreRefused, match="If-Match"):
        await store.replace("a", b"second", first)


async def test_parts_of_an_object_are_read_and_less_where_it_is_shorter(
    store: ObjectStore,
) -> None:
    await store.create("a", b"0123456789")
    assert await store.get("a", 2, 5) == b"234"
    assert await store.get("a", 8) == b"89"
    assert await store.get("a", 0, 100) == b"0123456789"


async def test_what_is_not_there_is_none(store: ObjectStore) -> None:
    assert await store.get("a/b") is None
    assert await store.get("a/b", 0, 10) is None
    assert list(await store.list("a/")) == []
    await store.delete(["a/b"])


async def test_a_store_knows_when_it_wrote_an_object_last(store: ObjectStore) -> None:
    assert await store.written_at("a") is None
    await store.create("a", b"x")
    await asyncio.sleep(0.02)
    await store.create("b", b"x")
    first, second = await store.written_at("a"), await store.written_at("b")
    assert first is not None
    assert second is not None
    assert 0 < second - first < 2
    await asyncio.sleep(0.02)
    await store.put("a", b"y")
    again = await store.written_at("a")
    assert again is not None
    assert again > second
    await store.delete(["a"])
    assert await store.written_at("a") is None


async def test_a_listing_is_in_order_and_begins_after_a_key(store: ObjectStore) -> None:
    for key in ("a/2", "a/1", "a/10", "b/1"):
        await store.create(key, b"x" * len(key))
    assert [tuple(x) for x in await store.list("a/")] == [("a/1", 3), ("a/10", 4), ("a/2", 3)]
    assert [x.key for x in await store.list("a/", "a/1")] == ["a/10", "a/2"]
    assert [x.key for x in await store.list("")] == ["a/1", "a/10", "a/2", "b/1"]


async def test_what_is_deleted_is_gone_and_may_be_created_again(store: ObjectStore) -> None:
    await store.create("a/1", b"x")
    await store.delete(["a/1"])
    assert await store.get("a/1") is None
    assert await store.create("a/1", b"y")


async def test_an_object_in_a_directory_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    link = os.link

    def linked(old: Path, new: Path) -> None:
        done.append("link")
        link(old, new)

    monkeypatch.setattr("os.fsync", lambda _: done.append("sync"))
    monkeypatch.setattr("os.link", linked)
    (tmp_path / "a").mkdir()
    await LocalStore(tmp_path).create("a/1", b"x")
    assert done == ["sync", "link", "sync"]


def in_row(number: int) -> str:
    return f"wal/00000001/b/{number:012}"


async def test_objects_of_a_row_are_objects_like_any_other(store: ObjectStore) -> None:
    creates = [store.create(in_row(n), b"%d" % n * n) for n in range(1, 30)]
    assert all(await asyncio.gather(*creates))
    assert not await store.create(in_row(7), b"another")
    assert [await store.get(in_row(n)) for n in (1, 7, 30)] == [b"1", b"7" * 7, None]
    assert await store.get(in_row(12), 2, 5) == b"121"
    listed = await store.list("wal/", in_row(27))
    assert [tuple(x) for x in listed] == [(in_row(28), 56), (in_row(29), 58)]
    assert await store.written_at(in_row(3)) is not None
    await store.put(in_row(3), b"restored")
    assert await store.get(in_row(3)) == b"restored"
    assert [x.key for x in await store.list("wal/")] == [in_row(n) for n in range(1, 30)]
    assert await store.written_at(in_row(30)) is None
    await store.delete([in_row(n) for n in range(1, 30)])
    assert await store.create(in_row(30), b"more")
    assert [x.key for x in await store.list("wal/")] == [in_row(30)]


async def test_who_seals_a_row_of_another_is_behind_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    ours, another = LocalStore(tmp_path), LocalStore(tmp_path)
    assert await ours.create(in_row(1), b"first")
    assert await ours.create(in_row(2), b"second")
    assert not await another.create(in_row(1), b"seal")
    assert not await another.create(in_row(2), b"seal")
    assert await another.get(in_row(2)) == b"second"
    assert await another.create(in_row(3), b"seal")
    assert not await ours.create(in_row(3), b"third")
    assert await ours.get(in_row(3)) == b"seal"
    third = LocalStore(tmp_path)
    assert [x.key for x in await third.list("wal/")] == [in_row(n) for n in (1, 2, 3)]


async def test_a_number_waits_for_those_before_it_and_all_that_wait_are_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, syncs, really = LocalStore(tmp_path), list[int](), os.fdatasync

    def noted(handle: int) -> None:
        syncs.append(handle)
        really(handle)

    monkeypatch.setattr("os.fdatasync", noted)
    await store.create(in_row(1), b"1")
    later = [asyncio.create_task(store.create(in_row(n), b"x")) for n in (4, 3, 2)]
    await asyncio.sleep(0)
    same = store.create(in_row(3), b"x")
    assert [await x for x in later] == [True, True, True]
    assert not await same
    assert len(syncs) == 2
    waiting = asyncio.create_task(store.create(in_row(6), b"6"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert await store.create(in_row(5), b"5")
    assert await waiting


async def test_a_row_goes_on_in_files_of_its_own_where_a_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(_: int) -> None:
        raise OSError(5, "Input/output error")

    store = LocalStore(tmp_path)
    assert await store.create(in_row(1), b"1")
    with monkeypatch.context() as broken:
        broken.setattr("os.fdatasync", failed)
        assert await store.create(in_row(2), b"2")
    assert await store.create(in_row(3), b"3")
    assert [await LocalStore(tmp_path).get(in_row(n)) for n in (1, 2, 3)] == [b"1", b"2", b"3"]
    assert (tmp_path / in_row(2)).read_bytes() == b"2"


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR])
async def test_a_place_that_cannot_be_written_is_refused_for_now_with_advice(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.link", denied)
    with (
        pytest.raises(FeedRefused, match="Give this user the right to") as refused,
        answers_of_feeds(),
    ):
        await LocalStore(tmp_path).create("a", b"x")
    assert refused.value.may_pass  # it may have the right a moment later


async def test_a_full_disk_may_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreUnavailable, match=r"No space left on device\. Make room there"):
        await LocalStore(tmp_path).create("a", b"x")
    monkeypatch.undo()
    assert await LocalStore(tmp_path).get("a") is None
    assert os.listdir(tmp_path / ".aside") == []  # noqa: PTH208


async def test_a_conflict_about_an_object_that_is_not_there_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3 answers a create with 409 when another request is under way there: try again."""
    pytest.importorskip("obstore.store")
    conflict = "<Error><Code>ConditionalRequestConflict</Code><Message>retry</Message></Error>"
    there = set[str]()

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PUT":
            return web.Response(status=409, text=conflict, content_type="application/xml")
        described = {"Content-Length": "1", "Last-Modified": "Thu, 26 Nov 2026 00:00:00 GMT"}
        if request.path in there:
            return web.Response(headers=described)
        return web.Response(status=404)

    app = web.Application()
    app.router.add_route("*", "/{key:.*}", answer)
    with take_port("127.0.0.1", 0) as listening:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address_of(listening)}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        async with serving(app, WebLimits(idle=60), listening):
            store = open_store("s3://bucket/log")
            with pytest.raises(StoreUnavailable):
                await store.create("a/1", b"x")
            there.add("/bucket/log/a/1")
            assert not await store.create("a/1", b"x")


@pytest.mark.parametrize("address", ["orders", "s3:/orders", "ftp://x/y", "file://host/x"])
def test_an_address_that_is_none_is_refused_with_the_forms(address: str) -> None:
    with pytest.raises(StoreRefused, match=r"give .*file:///DIRECTORY"):
        open_store(address)


def test_the_same_memory_address_is_the_same_store() -> None:
    assert open_store("memory:tests-1") is open_store("memory:tests-1")
    assert open_store("memory:tests-1") is not open_store("memory:tests-2")


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_directory_that_goes_away_is_waited_for_and_no_other_is_written_to(
    tmp_path: Path, *, replaced: bool
) -> None:
    place, away = tmp_path / "cluster", tmp_path / "away"
    store = LocalStore(place)
    assert await store.get("a/1") is None  # nothing is there yet
    await store.create("a/1", b"first")
    place.rename(away)
    if replaced:
        place.mkdir()  # as a mount point without its volume
    for call in (
        store.create("a/2", b"second"),
        store.put("a/1", b"other"),
        store.get("a/1"),
        store.list("a/"),
        store.delete(["a/1"]),
    ):
        with pytest.raises(StoreUnavailable, match="mount the volume"):
            await call
    assert [*place.rglob("*")] == []
    if replaced:
        place.rmdir()
    away.rename(place)
    assert await store.get("a/1") == b"first"
    assert await store.create("a/2", b"second")


NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("address", "endpoint", "account"),
    [
        (
            "az://orders/log",
            "AZURE_STORAGE_ENDPOINT",
            {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"},
        ),
        (
            "s3://orders/log",
            "AWS_ENDPOINT_URL",
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "r"},
        ),
    ],
)
async def test_a_store_that_is_not_reached_is_named_with_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, address: str, endpoint: str, account: dict[str, str]
) -> None:
    for name, value in {endpoint: NOWHERE, **account}.items():
        monkeypatch.setenv(name, value)
    store = open_store(address)
    for call in (store.get("x"), store.create("x", b""), store.list("")):
        with pytest.raises(StoreUnavailable, match=f"{address}.*{NOWHERE}.*{endpoint}"):
            await call


def test_a_store_without_credentials_is_refused_with_the_variables_that_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [x for x in os.environ if x.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StoreRefused, match="AZURE_STORAGE_ACCOUNT_NAME") as refused:
        open_store("az://orders/log")
    assert "\n" not in str(refused.value)
