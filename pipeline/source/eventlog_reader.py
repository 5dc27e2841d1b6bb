"""An event log as a planner sees it: ends are computed, changes come as columns."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.eventlog.bulk import BulkLog, BulkReader, Columns
from changefeed.feeds.feed import FeedRange, Position, RangeId, StartAt
from changefeed.feeds.timestamps import instant_us
from changefeed.pipeline.source.lineage import narrowed
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import Availability, FilePart, Slice
from changefeed.runtime.paths import expanded


class LogAccess:
    """See ``Access``. The catalog is read again whenever ranges are looked at."""

    children_inherit_positions = False
    positions_count_changes = True

    def __init__(self, path: str, *, only: Collection[RangeId] = ()) -> None:
        self._path = expanded(path, FeedRefused)
        self._log = BulkLog.at(self._path)
        self._only = only
        self.positions = PositionOrder(order=self._log.sequence, position=self._log.position)
        self._reader = BulkReader(self._log)  # opens nothing before something is read

    def identity(self) -> str:
        return ""  # every position says it

    def check_feed(self, offset: Offset) -> None:
        """Do nothing: every position says it."""

    def ranges(self) -> Sequence[FeedRange]:
        self._refresh()
        return narrowed([x.as_range() for x in self._log.catalog.partitions], self._only)

    def starts(self, names: Collection[RangeId], start: StartAt) -> Mapping[RangeId, Position]:
        if isinstance(start, datetime):
            time = instant_us(start)
            found = {x: self._log.sequence_before(x, time) for x in names}
        else:
            ends = {} if start == "beginning" else self._log.ends()
            found = {x: ends[x].last if ends else 0 for x in names}
        return {name: self.positions.position(sequence) for name, sequence in found.items()}

    def look(self, marks: Mapping[RangeId, Mark]) -> Mapping[RangeId, Availability]:
        self._refresh()
        ends = self._log.ends()
        sights = {}
        for name, mark in marks.items():
            self._log.catalog.partition(name)  # raises for a range that is none
            end, done = ends[name], self.positions.order(mark.position)
            if done > end.last:
                raise FeedRefused(
                    f"the position {mark.position!r} lies beyond the end of range {name!r},"
                    f" which has {end.last} changes: the log was restored from an older copy. "
                    f"Start the query again with a new checkpoint directory"
                )
            over = end.closed
            children = self._log.catalog.children(name) if over else None
            sights[name] = Availability(
                lag=end.last - done, end=self.positions.position(end.last), children=children
            )
        return sights

    def read(self, piece: Slice) -> Iterator[tuple[RangeId, Columns]]:
        begin, end = self.positions.order(piece.start), self.positions.order(piece.end)
        for columns in self._reader.read(piece.range_id, begin, end):
            yield piece.range_id, columns

    @property
    def place(self) -> str:
        return str(self._path.absolute())

    def has_segments(self) -> bool:
        """Whether something of the log is Parquet."""
        self._refresh()
        return self._log.is_sealed()

    def sealed(self) -> Mapping[RangeId, Position]:
        """Return where the last segment of each range ends, for those that have segments."""
        self._refresh()
        return {name: self.positions.position(x) for name, x in self._log.sealed_ends().items()}

    def split(self, piece: Slice) -> tuple[Sequence[FilePart], Sequence[Slice]]:
        """Return what of a slice Spark may read by itself, and what is left of it.

        A segment with bodies that are no text is left: they are escaped on their way.
        """
        begin, end = self.positions.order(piece.start), self.positions.order(piece.end)
        parts = [
            FilePart(path=x.path, after=x.after, end=x.end, is_whole=x.is_whole)
            for x in self._log.segments(piece.range_id, begin, end)
            if x.segment.file.is_text
        ]
        return parts, self.positions.around(piece, parts)

    def close(self) -> None:
        self._reader.close()

    def _refresh(self) -> None:
        log = BulkLog.at(self._path)
        if log.catalog.identity != self._log.catalog.identity:
            raise FeedRefused(
                f"the event log at {self._path} was deleted and recreated while it was read: "
                f"start the query again with a new checkpoint directory"
            )
        self._log = log
        self._reader.close()
        self._reader = BulkReader(log)
