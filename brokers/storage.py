"""How much of a collection lies in the store, and which producers its brokers remember.

Closed partitions are as large as the catalog says. The ends of open ones are read from their
rows, and what there is in segments from a listing. Flushes are not listed: there may be
hundred thousands, and a listing is a request for each thousand. Their numbers in a row have
no gaps, so the catalog and the ends say how many there are.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition, Row
from changefeed.feeds.brokers.errors import RowDamaged
from changefeed.feeds.brokers.flush import Ends, PartitionEnd, Reached
from changefeed.feeds.brokers.names import SEGMENTS
from changefeed.feeds.brokers.protocol import producer_of
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.brokers.wire import ProducerSeen, RangeStorage, Storage
from changefeed.feeds.feed import RangeId

_AT_ONCE = 1024


class _RowEnd(NamedTuple):
    """The number of the last object of a row, and how far its partitions have come."""

    number: int
    ends: Ends


_OpenRows = Mapping[tuple[int, str], _RowEnd]


async def storage_of(
    catalog: Catalog, name: str, readers: RowReaders[RowReader], store: ObjectStore
) -> Storage:
    """Raise ``StoreUnavailable``, and ``RowDamaged`` for a row whose end cannot be read."""
    collection = catalog.collection(name)
    rows, segments = await asyncio.gather(
        _open_rows(catalog, readers), store.list(f"{SEGMENTS}{name}/")
    )
    ends = _ends_of(name, rows)
    by_range: dict[str, list[int]] = defaultdict(list)
    for key, size in segments:
        by_range[key.split("/")[-2]].append(size)
    ranges: list[RangeStorage] = []
    for x in collection.partitions:
        if len(ranges) % _AT_ONCE == 0:
            await asyncio.sleep(0)  # of many eras: the broker has other things to do
        ranges.append(_range(x, ends.get(x.id), by_range[x.id]))
    flushes, flush_bytes = await _flushes(catalog, rows, readers)
    assert len(ranges) == len(collection.partitions), f"{name}: a partition is left out"
    assert flushes >= 0 <= flush_bytes, f"{flushes} objects of {flush_bytes} bytes"
    return Storage(
        ranges=tuple(ranges),
        producers=_producers(ends),
        flushes=flushes,
        flush_bytes=flush_bytes,
    )


async def _open_rows(catalog: Catalog, readers: RowReaders[RowReader]) -> _OpenRows:
    """Return how far the rows have come whose end the catalog does not know."""
    found = {}
    for era in catalog.eras:
        for x in era.rows:
            if x.sealed_at is None:
                row = readers.row(catalog, era.number, x.broker)
                await row.tail()
                found[era.number, x.broker] = _RowEnd(row.known, await row.ends())
    return found


def _ends_of(collection: str, rows: _OpenRows) -> Mapping[RangeId, PartitionEnd]:
    """Return how far the open partitions of a collection have come."""
    return {
        partition: end
        for row in rows.values()
        for (name, partition), end in row.ends.items()
        if name == collection
    }


async def _flushes(
    catalog: Catalog, rows: _OpenRows, readers: RowReaders[RowReader]
) -> tuple[int, int]:
    """Return how many flushes of all collections are kept, and the bytes of their records."""
    closed: Counter[tuple[int, str]] = Counter()
    for collection in catalog.collections:
        closed += await _closed_bytes(collection)
    number = size = 0
    for era in catalog.eras:
        for row in era.rows:
            place = (era.number, row.broker)
            if row.sealed_at is None:
                last = rows[place].number
                stored = sum(x.stored for x in rows[place].ends.values())
            else:
                last, stored = row.sealed_at, closed[place]
                assert row.kept_from <= last, f"the seal of {place} stays: {row}"
            number += max(last - row.kept_from + 1, 0)
            if row.kept_from == 1:
                size += stored
            elif row.kept_from < last:
                reader = readers.row(catalog, *place)
                size += max(stored - await _stored_before(reader, row), 0)
    return number, size


async def _closed_bytes(collection: Collection) -> Counter[tuple[int, str]]:
    """Return the bytes that closed partitions were sent, by their rows."""
    found: Counter[tuple[int, str]] = Counter()
    for n, x in enumerate(collection.partitions):
        if n % _AT_ONCE == 0:
            await asyncio.sleep(0)
        found[x.era, x.broker] += x.stored
    return found


async def _stored_before(reader: RowReader, row: Row) -> int:
    """Return the bytes of records before what is kept of a row, which begins with a table.

    Where that cannot be read, 0: what is shown is then more than there is.
    """
    with suppress(RowDamaged):
        header = await reader.header(row.kept_from)
        return sum(x.stored for x in (header.table if header and header.table else ()))
    return 0


def _range(
    partition: Partition, end: PartitionEnd | None, segments: Sequence[int]
) -> RangeStorage:
    stored = partition.stored if end is None else end.stored
    return RangeStorage(
        range=partition.id,
        bytes=max(stored - partition.gone, 0),
        segments=len(segments),
        segment_bytes=sum(segments),
        producers=0 if end is None else len({producer_of(x.producer) for x in end.producers}),
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
