"""Segments of a cluster, read from its store as Arrow: a row group at a time.

Each row group is one request, and so is what lies behind all of them. What they are to be is
known from the run that names the segment: so a file that was changed, or is another, is none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.errors import Damaged
from changefeed.log.format.segment_file import Segment
from changefeed.log.format.segments import check_tail, cut_rows, read_group
from changefeed.log.reading.stored_collection import SegmentRows

if TYPE_CHECKING:
    from concurrent.futures import Future

Fetch = Callable[[str, int, int], "Future[bytes | None]"]
"""Begins to read bytes of an object by its key, without the last number given."""

_ROWS: Final = 32_768


def check_footer(name: RangeId, segment: Segment, fetch: Fetch) -> bool:
    """Return whether a file that others will read is there. Raise ``RangeDamaged``."""
    tail = fetch(segment.key, *segment.tail).result()
    if tail is None:
        return False
    with _noticed(name, segment):
        check_tail(segment, tail)
    return True


def read_rows(
    name: RangeId, stored: SegmentRows, after: int, end: int, fetch: Fetch
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range with ``after < sequence <= end``, in order: fewer where the
    object is gone meanwhile.

    Each row group is on its way while the one before is read. Raise ``RangeDamaged``.
    """
    segment = stored.segment
    wanted = [x for x in stored.rows if x.last > after and x.first <= end]
    tail = fetch(segment.key, *segment.tail)
    asked = [fetch(segment.key, *segment.bounds(wanted[0].group))]
    for rows, following in zip(wanted, [*wanted[1:], None], strict=True):
        data, footer = asked.pop().result(), tail.result()
        if data is None or footer is None:
            return
        if following is not None:
            asked.append(fetch(segment.key, *segment.bounds(following.group)))
        before = max(0, after + 1 - rows.first)
        count = min(end, rows.last) - rows.first + 1 - before
        with _noticed(name, segment):
            batches = read_group(segment, footer, rows.group, data, _ROWS)
            yield from cut_rows(batches, rows.skip + before, count)


@contextmanager
def _noticed(name: RangeId, segment: Segment) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        raise RangeDamaged(
            name,
            f"records of range {name!r} cannot be read: {segment.key} is not what was written "
            f"({error}). Restore the object from a copy of the store; the other ranges go on",
        ) from error
