"""How much of a collection lies in the store, and which producers its brokers remember.

Closed partitions are as large as the catalog says. The ends of open ones are read from their
rows, and what there is in segments from a listing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition
from changefeed.feeds.brokers.flush import PartitionEnd, Reached
from changefeed.feeds.brokers.names import SEGMENTS, WAL
from changefeed.feeds.brokers.protocol import producer_of
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.brokers.stores.store import Listed, ObjectStore
from changefeed.feeds.brokers.wire import ProducerSeen, RangeStorage, Storage
from changefeed.feeds.feed import RangeId


async def storage_of(
    catalog: Catalog, name: str, readers: RowReaders, store: ObjectStore
) -> Storage:
    """Raise ``StoreUnavailable``, and ``RowDamaged`` for a row whose end cannot be read."""
    collection = catalog.collection(name)
    ends, segments, flushes = await asyncio.gather(
        _open_ends(catalog, collection, readers),
        store.list(f"{SEGMENTS}{name}/"),
        store.list(WAL),
    )
    by_range: dict[str, list[int]] = defaultdict(list)
    for key, size in segments:
        by_range[key.split("/")[-2]].append(size)
    return Storage(
        ranges=tuple(
            _range(x, ends.get(x.id), by_range[x.id], collection.chosen_homes.get(x.id, ""))
            for x in collection.partitions
        ),
        producers=_producers(ends),
        flushes=len(flushes),
        flush_bytes=_size(flushes),
    )


async def _open_ends(
    catalog: Catalog, collection: Collection, readers: RowReaders
) -> Mapping[RangeId, PartitionEnd]:
    """Return how far the open partitions of a collection have come."""
    found: dict[RangeId, PartitionEnd] = {}
    for era, broker in sorted({(x.era, x.broker) for x in collection.open_partitions()}):
        row = readers.row(catalog, era, broker)
        await row.tail()
        ends = (await row.ends()).items()
        found |= {x: end for (name, x), end in ends if name == collection.name}
    return found


def _range(
    partition: Partition, end: PartitionEnd | None, segments: Sequence[int], moved_to: str
) -> RangeStorage:
    stored = partition.stored if end is None else end.stored
    return RangeStorage(
        range=partition.id,
        bytes=max(stored - partition.gone, 0),
        segments=len(segments),
        segment_bytes=sum(segments),
        producers=0 if end is None else len({producer_of(x.producer) for x in end.producers}),
        moved_to=moved_to,
    )


def _producers(ends: Mapping[RangeId, PartitionEnd]) -> tuple[ProducerSeen, ...]:
    """Return who has written to open partitions, the last one first."""
    found: dict[str, list[tuple[RangeId, Reached]]] = defaultdict(list)
    for name, end in ends.items():
        for reached in end.producers:
            found[producer_of(reached.producer)].append((name, reached))
    seen = (
        ProducerSeen(
            id=producer,
            ranges=len({name for name, _ in there}),
            records=sum(x.sequence for _, x in there),
            seen_us=max(x.seen_us for _, x in there),
        )
        for producer, there in found.items()
    )
    return tuple(sorted(seen, key=lambda x: (-x.seen_us, x.id)))


def _size(objects: Sequence[Listed]) -> int:
    return sum(x.size for x in objects)
