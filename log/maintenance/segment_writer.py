"""Making one segment: records of a collection become Parquet, and an object of the store."""

import asyncio
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from changefeed.log.catalog.names import segment_key
from changefeed.log.errors import Damaged
from changefeed.log.format.pack import Records
from changefeed.log.format.parquet import segments_module
from changefeed.log.format.runs import as_one
from changefeed.log.format.segment_file import RowGroup, Segment, Slice
from changefeed.log.stores.store import ObjectStore, create_once

_GROUP_BYTES: Final = 8 * 1024 * 1024
_GROUP_RECORDS: Final = 64 * 1024
"""A row group of one partition takes no more sections once it has either."""
_SHARED_BYTES: Final = 1024 * 1024
"""A row group that partitions share takes no more of them: who reads one reads all."""


async def write_segment(
    store: ObjectStore, prefix: str, gathered: Sequence[Records]
) -> Segment:
    """Make a segment of one collection, whose name begins with a prefix.

    ``gathered`` is in the order of partitions, without a gap in each. Raise ``Damaged`` where
    it cannot be made, or another thing has its name.
    """
    assert gathered, "a segment without records"
    assert len({x.key[0] for x in gathered}) == 1, f"{prefix} is of one collection"
    try:
        data, segment = await asyncio.to_thread(_encoded, prefix, gathered)
    except Damaged as error:
        raise Damaged(
            f"what is to be in {prefix}… cannot be read: {error}. Restore the objects of "
            f"the row from a copy of the store"
        ) from error
    if not await create_once(store, segment.key, data):
        raise Damaged(f"{segment.key} is not what its name says: delete it")
    return segment


def _encoded(prefix: str, gathered: Sequence[Records]) -> tuple[bytes, Segment]:
    segments = segments_module()
    laid_out = [replace(x, columns=segments.canonical(x.columns)) for x in gathered]
    groups = [*_row_groups(laid_out)]
    data, ends, is_text = segments.write_segment(groups)
    assert ends[-1] < len(data), (
        f"no footer lies behind the row groups, which end at {ends[-1]}"
    )
    return data, Segment(
        collection=gathered[0].key[0],
        key=segment_key(prefix, data),
        groups=tuple(
            RowGroup(end=end, crc=zlib.crc32(data[begin:end]), slices=tuple(map(_slice, group)))
            for begin, end, group in zip([0, *ends], ends, groups, strict=False)
        ),
        size=len(data),
        is_text=is_text,
        tail_crc=zlib.crc32(data[ends[-1] :]),
    )


def _slice(found: Records) -> Slice:
    _, name = found.key
    return Slice(range_id=name, first=found.first, count=found.count, latest_us=found.latest_us)


def _row_groups(gathered: Sequence[Records]) -> Iterator[Sequence[Records]]:
    """Give each partition that is large row groups of its own; the others share some."""
    shared, size = list[Records](), 0
    for _, sections in groupby(gathered, key=lambda x: x.key):
        for one in map(as_one, slices([*sections], _GROUP_BYTES, _GROUP_RECORDS)):
            if one.bytes >= _SHARED_BYTES:
                yield [one]
                continue
            shared.append(one)
            size += one.bytes
            if size >= _SHARED_BYTES:
                yield shared
                shared, size = [], 0
    if shared:
        yield shared


def slices(
    gathered: Sequence[Records], most_bytes: int, most_records: int = sys.maxsize
) -> Iterator[Sequence[Records]]:
    """Cut sections that follow each other: a slice takes no more once it has so much."""
    found: list[Records] = []
    size = count = 0
    for one in gathered:
        found.append(one)
        size += one.bytes
        count += one.count
        if size >= most_bytes or count >= most_records:
            yield found
            found, size, count = [], 0, 0
    if found:
        yield found
