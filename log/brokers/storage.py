"""How much of a collection lies in the store, and which producers its brokers remember.

Where partitions end, and how large they are, is read from their rows; what there is in segments
from a listing. Flushes are not listed: there may be hundred thousands, and a listing is a
request for each thousand. Their numbers in a row have no gaps, so the catalog and the ends say
how many there are.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from changefeed.log.catalog.catalog import Catalog, Row
from changefeed.log.catalog.names import segments_of
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import Ends, ProducerState
from changefeed.log.protocol.wire import ActiveProducer, RangeStorage, Storage
from changefeed.log.rows.extents import extent_of
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore

_AT_ONCE = 1024


class _RowEnd(NamedTuple):
    """The number of the last object of a row, and how far all have come."""

    number: int
    ends: Ends
    producers: Iterable[ProducerState]


_Rows = Mapping[tuple[int, str], _RowEnd]


async def storage_of(
    catalog: Catalog, name: str, readers: RowReaders, store: ObjectStore
) -> Storage:
    """Raise ``StoreUnavailable``, and ``Damaged`` for a row whose end cannot be read."""
    collection = catalog.collection(name)
    rows, segments = await asyncio.gather(
        _rows(catalog, readers), store.list(segments_of(name))
    )
    ranges: list[RangeStorage] = []
    for x in ranges_of(catalog, name).all():
        if len(ranges) % _AT_ONCE == 0:
            await asyncio.sleep(0)  # of many eras: the broker has other things to do
        there = extent_of(collection, x, rows[x.era, x.broker].ends)
        assert there.gone <= there.stored, f"more of {x.id} is gone than there was: {there}"
        ranges.append(
            RangeStorage(range=x.id, start=there.start, last=there.last, bytes=there.bytes)
        )
    flushes, flush_bytes = await _flushes(catalog, rows, readers)
    assert flushes >= 0 <= flush_bytes, f"{flushes} objects of {flush_bytes} bytes"
    return Storage(
        ranges=tuple(ranges),
        producers=_producers(name, rows),
        segments=len(segments),
        segment_bytes=sum(x.size for x in segments),
        flushes=flushes,
        flush_bytes=flush_bytes,
    )


async def _rows(catalog: Catalog, readers: RowReaders) -> _Rows:
    """Return how far the rows of all eras have come."""
    found = {}
    for era in catalog.eras:
        for x in era.rows:
            row = readers.row(catalog, era.number, x.broker)
            await row.tail()
            producers = (await row.producers()).values() if era is catalog.era else ()
            found[era.number, x.broker] = _RowEnd(row.known, await row.ends(), producers)
    return found


async def _flushes(catalog: Catalog, rows: _Rows, readers: RowReaders) -> tuple[int, int]:
    """Return how many flushes of all collections are kept, and the bytes of their records."""
    number = size = 0
    for era in catalog.eras:
        for row in era.rows:
            last, ends, _ = rows[era.number, row.broker]
            stored = sum(x.stored for x in ends.values())
            assert row.sealed_at is None or row.kept_from <= last, f"the seal stays: {row}"
            number += max(last - row.kept_from + 1, 0)
            if row.kept_from == 1:
                size += stored
            elif row.kept_from < last:
                reader = readers.row(catalog, era.number, row.broker)
                size += max(stored - await _stored_before(reader, row), 0)
    return number, size


async def _stored_before(reader: RowReader, row: Row) -> int:
    """Return the bytes of records before what is kept of a row, which begins with a table.

    Where that cannot be read, 0: what is shown is then more than there is.
    """
    with suppress(Damaged):
        header = await reader.header(row.kept_from)
        return sum(x.stored for x in (header.table if header and header.table else ()))
    return 0


def _producers(collection: str, rows: _Rows) -> tuple[ActiveProducer, ...]:
    """Return who has written to a collection in this era, the last one first."""
    seen: dict[str, int] = {}
    for row in rows.values():
        for x in row.producers:
            if x.collection == collection:
                seen[x.producer] = max(seen.get(x.producer, 0), x.seen_us)
    found = (ActiveProducer(id=name, seen_us=seen_us) for name, seen_us in seen.items())
    return tuple(sorted(found, key=lambda x: (-x.seen_us, x.id)))
