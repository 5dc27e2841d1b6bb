"""Pages out of segments: a reader that goes on where it has stopped costs no search.

A cursor is a segment that is open, read up to some sequence. It is kept under the place it
has come to, and the next read from there takes it; so any number of readers of one
range do not disturb each other. The oldest are closed when there are too many.
"""

from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from changefeed.feeds.eventlog.block_format import BlockDamaged, changes_of
from changefeed.feeds.eventlog.catalog import Catalog
from changefeed.feeds.eventlog.damage import damaged
from changefeed.feeds.eventlog.sealed import read_sealed
from changefeed.feeds.eventlog.segment_rows import Segment
from changefeed.feeds.feed import Change

if TYPE_CHECKING:
    from changefeed.feeds.eventlog.bulk import Columns

_CURSORS: Final = 64
_BATCH: Final = 2000  # a whole number of the pages that hosts ask for

_Place = tuple[int, int]
"""The number of a partition, and the next sequence."""


@dataclass(slots=True, kw_only=True)
class _Cursor:
    pieces: "Generator[Columns, None, None]"
    read: list[Change] = field(default_factory=list)
    """What was read and not handed out, the next change last."""

    def close(self) -> None:
        self.pieces.close()


class Cursors:
    """Reads pages of segments. Calls may come from several threads, and block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[_Place, _Cursor] = OrderedDict()
        self._closed = False

    def page(
        self, catalog: Catalog, segment: Segment, wanted: int, limit: int
    ) -> Sequence[Change]:
        """Return the changes from a sequence on, as many as there are in the segment.

        Raise ``RangeDamaged`` if the first cannot be read.
        """
        assert limit > 0, "a page holds at least one change"
        place = segment.partition, wanted
        with self._lock:
            cursor = self._kept.pop(place, None)
        if cursor is None:
            cursor = _Cursor(pieces=read_sealed(catalog, segment, wanted, _BATCH))
        try:
            page = _page(cursor, catalog, segment, wanted, limit)
        except BaseException:
            cursor.close()
            raise
        assert page[0].sequence == wanted, f"a page from {page[0].sequence} on, not {wanted}"
        self._keep((segment.partition, wanted + len(page)), cursor, segment)
        return page

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept, self._kept = list(self._kept.values()), OrderedDict()
        for cursor in kept:
            cursor.close()

    def _keep(self, place: _Place, cursor: _Cursor, segment: Segment) -> None:
        dropped = [cursor]
        with self._lock:
            if not self._closed and place[1] <= segment.file.last:
                dropped = [x for x in [self._kept.pop(place, None)] if x is not None]
                self._kept[place] = cursor
                if len(self._kept) > _CURSORS:
                    dropped.append(self._kept.popitem(last=False)[1])
                assert len(self._kept) <= _CURSORS, f"{len(self._kept)} segments are open"
        for one in dropped:
            one.close()


def _page(
    cursor: _Cursor, catalog: Catalog, segment: Segment, wanted: int, limit: int
) -> list[Change]:
    if not cursor.read:
        columns = next(cursor.pieces)
        range_id = catalog.by_number[segment.partition].id
        first, count = columns.first - columns.skip, len(columns.layout.kinds)
        try:
            made = changes_of(range_id, first, count, columns.layout)
        except BlockDamaged as error:
            raise damaged(catalog, range_id, wanted, first + count - 1) from error
        cursor.read = list(made[columns.skip :])
        cursor.read.reverse()
    page = cursor.read[-limit:]
    del cursor.read[-limit:]
    page.reverse()
    return page
