"""An event log as a planner sees it: positions are computed, changes come as columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from feeds.errors import FeedRefused
from feeds.eventlog.columns import BulkLog, Columns
from feeds.feed import Continuation, FeedRange, RangeId, StartAt
from feeds.instant import instant_us

from .access import Sight, Slice
from .offsets import Mark


class LogAccess:
    """See ``Access``. The catalog is read again whenever ranges are looked at."""

    keeps_bounds = False

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        self._log = BulkLog.at(self._path)

    def recall(self, marks: Mapping[RangeId, Mark]) -> None:
        """Do nothing: a log names every range there ever was."""

    def ranges(self) -> Sequence[FeedRange]:
        self._refresh()
        return [x.as_range() for x in self._log.catalog.partitions]

    def settle(self, range_id: RangeId, start: StartAt) -> Continuation:
        if isinstance(start, datetime):
            return self._position(self._log.sequence_before(range_id, instant_us(start)))
        return self._position(0 if start == "beginning" else self._log.ends()[range_id].last)

    def look(self, marks: Mapping[RangeId, Mark]) -> Mapping[RangeId, Sight]:
        self._refresh()
        ends = self._log.ends()
        sights = {}
        for name, mark in marks.items():
            self._log.catalog.partition(name)  # raises for a range that is none
            end, done = ends[name], self._log.sequence(mark.continuation)
            if done > end.last:
                raise FeedRefused(
                    f"the position {mark.continuation!r} lies beyond the end of range {name!r},"
                    f" which has {end.last} changes: the log was restored from an older copy. "
                    f"Start the query again with a new checkpoint directory"
                )
            over = end.closed
            successors = self._log.catalog.successors(name) if over else None
            sights[name] = Sight(lag=end.last - done, successors=successors)
        return sights

    def order(self, position: Continuation) -> int:
        return self._log.sequence(position)

    def advance(
        self, range_id: RangeId, after: Continuation, count: int | None, until: int | None
    ) -> Continuation:
        last = self._log.ends()[range_id].last
        done = self._log.sequence(after)
        end = last if count is None else min(last, done + count)
        return self._position(max(done, end if until is None else min(end, until)))

    def cut(self, piece: Slice, changes: int) -> Sequence[Slice]:
        begin, end = self._log.sequence(piece.start), self._log.sequence(piece.end)
        count = max(1, (end - begin) // changes)
        edges = [begin + (end - begin) * n // count for n in range(count + 1)]
        return [
            replace(piece, start=self._position(a), end=self._position(b), changes=b - a)
            for a, b in pairwise(edges)
        ]

    def read(self, piece: Slice) -> Iterator[tuple[RangeId, Columns]]:
        begin, end = self._log.sequence(piece.start), self._log.sequence(piece.end)
        for columns in self._log.read(piece.range_id, begin, end):
            yield piece.range_id, columns

    def close(self) -> None:
        """Nothing is open between calls."""

    def _refresh(self) -> None:
        log = BulkLog.at(self._path)
        if log.catalog.identity != self._log.catalog.identity:
            raise FeedRefused(
                f"the event log at {self._path} was deleted and made anew while it was read: "
                f"start the query again with a new checkpoint directory"
            )
        self._log = log

    def _position(self, sequence: int) -> Continuation:
        return self._log.position(sequence)
