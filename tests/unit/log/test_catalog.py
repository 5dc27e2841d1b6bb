"""The format of the catalog, and what is looked up in it."""

import asyncio

import pytest
from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog import (
    FORMAT,
    Catalog,
    Cluster,
    Member,
    Row,
    decode_catalog,
    encode_catalog,
    encode_collection,
    first_catalog,
)
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.catalog.transitions import (
    begin_ending,
    close_and_open,
    new_collection,
    open_first_era,
)
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreUnavailable
from tests.support.watched_store import WatchedStore

IDENTITY = "0123456789abcdef0123456789abcdef"


def a_catalog(parts: int = 2) -> Catalog:
    empty = first_catalog(Cluster(identity=IDENTITY))
    rows = [Row(broker="broker-1", incarnation="i", address="localhost:1")]
    orders = new_collection(empty, "orders", parts=parts, identity="c" * 32, now_us=1)
    members = {"broker-1": Member(incarnation="i", address="localhost:1")}
    return open_first_era(replace(empty, members=members, collections=(orders,)), rows, 2)


def test_the_bytes_of_a_catalog_and_of_a_collection_are_frozen() -> None:
    assert encode_catalog(a_catalog()) == FROZEN
    assert encode_collection(a_catalog().collection("orders")) == FROZEN_COLLECTION


def test_a_catalog_with_a_wrong_byte_is_refused() -> None:
    data = encode_catalog(a_catalog())
    for place in range(0, len(data), 7):
        wrong = bytearray(data)
        wrong[place] ^= 1
        with pytest.raises(FeedRefused, match="the catalog of the cluster"):
            decode_catalog(bytes(wrong), IDENTITY)


@pytest.mark.parametrize(
    ("catalog", "identity", "named"),
    [
        (a_catalog(), "f" * 32, "one copy"),  # of another cluster
        (replace(a_catalog(), format=FORMAT - 1), IDENTITY, "in another place"),
        (replace(a_catalog(), format=FORMAT + 1), IDENTITY, "upgrade"),
    ],
)
def test_a_catalog_that_is_not_the_one_wanted_or_of_another_format_is_refused(
    catalog: Catalog, identity: str, named: str
) -> None:
    with pytest.raises(FeedRefused, match=named):
        decode_catalog(encode_catalog(catalog), identity)


def test_a_catalog_of_3072_partitions_and_a_hundred_eras_is_small() -> None:
    eighths = tuple(range(256))
    catalog = replace(a_catalog(12), reshaping={"orders": (eighths,) * 12})
    rows = [
        Row(broker=f"broker-{n}", incarnation="0" * 32, address=f"host-{n}:7070") for n in "123"
    ]
    for era in range(1, 101):
        assert catalog.era is not None
        sealed = {x.broker: 10**6 for x in catalog.era.rows}
        catalog = close_and_open(begin_ending(catalog, era, rows), era, sealed, 2 * 10**15)
    assert len(ranges_of(catalog, "orders").open) == 3072
    assert len(ranges_of(catalog, "orders").in_era(2)) == 3072
    assert len(encode_catalog(catalog)) <= 100_000


async def test_a_thousand_collections_are_a_thousand_puts_each_of_as_many_bytes() -> None:
    store, written = WatchedStore(), list[tuple[str, str]]()
    catalogs = CatalogStore(store, await open_cluster(store))
    await catalogs.change(lambda x: open_first_era(x, [Row(broker="b", incarnation="i")], 1))

    async def note(call: str, key: str) -> None:
        if call != "get":
            written.append((call, key))

    store.before = note
    names = [f"c{n:03}" for n in range(1000)]
    for name in names:
        await catalogs.create(name)
    assert written == [("create", f"collections/{x}") for x in names]
    assert len({len(store.objects[key]) for _, key in written}) == 1
    other = CatalogStore(store, await open_cluster(store))
    await other.refresh()
    assert not other.newest.collections  # it reads what it is asked for
    assert await other.find("c500") == catalogs.newest.collection("c500")


async def test_a_collection_that_was_changed_is_read_again_by_all() -> None:
    store = MemoryStore()
    one, other = [CatalogStore(store, await open_cluster(store)) for _ in range(2)]
    await one.create("orders")
    assert (await other.find("orders")).retain_bytes is None
    await one.retain("orders", seconds=None, bytes_=7)
    assert (await other.refresh()).collection("orders").retain_bytes == 7
    third = CatalogStore(store, await open_cluster(store))
    assert (await third.refresh()).collection("orders").retain_bytes == 7


async def test_a_collection_that_another_task_reads_beside_others_is_known_once_found() -> None:
    store, asked, released = WatchedStore(), asyncio.Event(), asyncio.Event()
    for name in ("orders", "users"):
        await CatalogStore(store, await open_cluster(store)).create(name)

    async def hold(_: str, key: str) -> None:
        if key == "collections/users":
            asked.set()
            await released.wait()

    store.before = hold
    catalogs = CatalogStore(store, await open_cluster(store))
    async with asyncio.TaskGroup() as group:
        group.create_task(catalogs.find_all())
        await asked.wait()  # it has read one of the two
        found = await catalogs.find("orders")
        assert catalogs.newest.collection("orders") == found
        released.set()


async def nothing(_call: str, _key: str) -> None:
    """Let the call be made."""


async def test_a_change_that_others_were_not_told_of_is_announced_by_the_next() -> None:
    store = WatchedStore()
    catalogs, other = [CatalogStore(store, await open_cluster(store)) for _ in range(2)]
    await catalogs.create("orders")

    async def cut_off(call: str, key: str) -> None:
        if (call, key) == ("replace", "catalog"):
            raise StoreUnavailable("cut off")

    store.before = cut_off
    with pytest.raises(StoreUnavailable):
        await catalogs.retain("orders", seconds=None, bytes_=7)
    store.before = nothing
    await catalogs.announce()
    assert (await other.refresh()).collection("orders").retain_bytes == 7


async def test_a_collection_whose_object_is_damaged_is_refused_and_no_other() -> None:
    store = MemoryStore()
    catalogs = CatalogStore(store, await open_cluster(store))
    for name in ("orders", "users"):
        await catalogs.create(name)
    store.objects["collections/orders"] = store.objects["collections/users"]
    other = CatalogStore(store, await open_cluster(store))
    with pytest.raises(FeedRefused, match="'orders'"):
        await other.find("orders")
    assert (await other.find("users")).name == "users"


FROZEN = (
    b'0696d310\n{"number":1,"identity":"0123456789abcdef012345678'
    b'9abcdef","format":10,"members":{"broker-1":{"incarnation":"'
    b'i","address":"localhost:1"}},"eras":[{"number":1,"began_us'
    b'":2,"rows":[{"broker":"broker-1","incarnation":"i","addres'
    b's":"localhost:1","sealed_at":null,"kept_from":1}]}],"resha'
    b'ping":{},"revisions":{},"changes":[]}'
)
FROZEN_COLLECTION = (
    b'13c615b3\n{"name":"orders","identity":"cccccccccccccccccccc'
    b'cccccccccccc","parts":2,"created_us":1,"since":1,"revision'
    b'":1,"retain_seconds":null,"retain_bytes":null,"kept_era":1'
    b',"gone":{},"cut":null,"old_us":null}'
)
