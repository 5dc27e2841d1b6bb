"""What clients are shown of a catalog: made in pieces, of one catalog, and not made twice."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from changefeed.brokers import topologies
from changefeed.brokers.topologies import Topologies
from changefeed.feeds.brokers.catalog import Catalog, Cluster, Partition, Row, first_catalog
from changefeed.feeds.brokers.catalog_index import CatalogIndex, CollectionIndex
from changefeed.feeds.brokers.protocol import PartitionInfo, Topology
from changefeed.feeds.brokers.topology import partition_info, topology_of
from changefeed.feeds.brokers.transitions import (
    begin_ending,
    close_and_open,
    open_first_era,
    with_collection,
)

_ROWS = [Row(broker="broker-1", incarnation="1", address="host-1:7070")]


def next_era(catalog: Catalog) -> Catalog:
    assert catalog.era is not None
    ending = begin_ending(catalog, catalog.era.number, _ROWS)
    return close_and_open(ending, catalog.era.number, {"broker-1": (1, {})}, 0)


def with_first(catalog: Catalog, **changes: object) -> Catalog:
    """Return the next catalog, in which the oldest partition of orders has changed."""
    orders, *others = catalog.collections
    first, *rest = orders.partitions
    orders = replace(orders, partitions=(replace(first, **changes), *rest))
    return replace(catalog, number=catalog.number + 1, collections=(orders, *others))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """A catalog of three eras with 2, 512 and 512 partitions, of two collections."""
    catalog = first_catalog(Cluster(identity="0" * 32))
    for name in ("orders", "returns"):
        catalog = with_collection(catalog, name, parts=2, identity=name, now_us=0)
    catalog = open_first_era(catalog, _ROWS, 0)
    orders, *others = catalog.collections
    cuts = (tuple(range(256)),) * 2
    catalog = replace(catalog, collections=(replace(orders, cuts=cuts), *others))
    return next_era(next_era(catalog))


def decoded(shown: Sequence[bytes]) -> Topology:
    return msgspec.json.decode(b"".join(shown), type=Topology)


@pytest.mark.parametrize("name", ["orders", "returns"])
@pytest.mark.parametrize("since", [0, 1, 2, 3])
async def test_the_pieces_are_the_whole(catalog: Catalog, name: str, since: int) -> None:
    index = CatalogIndex(catalog)
    shown = decoded(await Topologies().show(index, name, since_era=since))
    assert shown == topology_of(index, name, since_era=since)
    empty = first_catalog(Cluster(identity="0" * 32))
    index = CatalogIndex(with_collection(empty, name, parts=2, identity="1", now_us=0))
    assert decoded(await Topologies().show(index, name)) == topology_of(index, name)


async def test_others_have_their_turn_after_each_piece(catalog: Catalog) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await Topologies().show(CatalogIndex(catalog), "orders")
    counting.cancel()
    assert turns >= (2 + 512 + 512) // 128 - 1


async def test_each_of_two_that_are_made_at_once_is_of_its_own_catalog(
    catalog: Catalog,
) -> None:
    kept = Topologies()
    older, newer = CatalogIndex(catalog), CatalogIndex(with_first(catalog, start=1))
    for _ in range(2):
        found = await asyncio.gather(*(kept.show(x, "orders") for x in (older, newer, older)))
        assert [decoded(x) for x in found] == [
            topology_of(x, "orders") for x in (older, newer, older)
        ]


async def test_only_what_has_changed_is_made_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Partition] = []

    def counted(found: CollectionIndex, partition: Partition) -> PartitionInfo:
        made.append(partition)
        return partition_info(found, partition)

    def taken() -> Sequence[Partition]:
        found = [*made]
        made.clear()
        return found

    monkeypatch.setattr(topologies, "partition_info", counted)
    kept = Topologies()
    await kept.show(CatalogIndex(catalog), "orders")
    assert len(taken()) == 2 + 512 + 512
    catalog = with_first(catalog, start=1)
    index = CatalogIndex(catalog)
    assert decoded(await kept.show(index, "orders")) == topology_of(index, "orders")
    assert [x.era for x in taken()] == [1, 1]
    catalog = next_era(catalog)
    await kept.show(CatalogIndex(catalog), "orders")
    assert {x.era for x in taken()} == {3, 4}  # that of the last was open before
