"""Filters that Spark pushes into a batch: less is read, and what is read is what it wants.

Spark leaves those on ``range`` and ``sequence`` to the source, which keeps them exactly. One on
``committed_at`` tells where to begin: no change committed since lies before that. Where a
``key`` is one, or one of some, only ranges with their hashes are read. Spark applies both
again, and all others, for the source knows no more of them.

Limits: Spark 4.1 to 4.3 reuses a plan with filters for other scans of one DataFrame, which
then lack rows. So the option ``pushFilters`` is off by default. Streams have no such hook.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.feed import Position, RangeId
from changefeed.pipeline.source.reader import Access, Slice

_TOP: Final = (1 << 63) - 1


class Filters:
    """What Spark has pushed. Pickles."""

    def __init__(self) -> None:
        self._ranges: set[str] | None = None
        self._first, self._last = -_TOP, _TOP
        self._since: datetime | None = None
        self._keys: set[str] | None = None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over what can be kept. Yield what Spark has to apply."""
        for x in filters:
            if not self._takes(x):
                yield x

    def _takes(self, x: Filter) -> bool:
        """Note a filter. Return whether it is kept exactly."""
        match x:
            case EqualTo(("range",), name):
                self._in_ranges({name})
            case In(("range",), names):
                self._in_ranges(set(names))
            case EqualTo(("sequence",), int(n)):
                self._between(n, n)
            case GreaterThan(("sequence",), int(n)):
                self._between(n + 1, _TOP)
            case GreaterThanOrEqual(("sequence",), int(n)):
                self._between(n, _TOP)
            case LessThan(("sequence",), int(n)):
                self._between(-_TOP, n - 1)
            case LessThanOrEqual(("sequence",), int(n)):
                self._between(-_TOP, n)
            case EqualTo(("key",), key) | EqualNullSafe(("key",), key):
                return self._has_key({key})
            case In(("key",), keys):
                return self._has_key({*keys})
            case _:
                self._begins(x)
                return False
        return True

    def _has_key(self, keys: set[str | None]) -> bool:
        found = {x for x in keys if x is not None}  # no change has null
        self._keys = found if self._keys is None else self._keys & found
        return False

    def _begins(self, x: Filter) -> None:
        match x:
            case EqualTo(at, time) | GreaterThan(at, time) | GreaterThanOrEqual(at, time):
                if at == ("committed_at",) and isinstance(time, datetime) and time.tzinfo:
                    self._since = time if self._since is None else max(self._since, time)

    def _in_ranges(self, names: set[str]) -> None:
        self._ranges = names if self._ranges is None else self._ranges & names

    def _between(self, first: int, last: int) -> None:
        self._first, self._last = max(self._first, first), min(self._last, last)

    def narrowed(self, access: Access, slices: Sequence[Slice]) -> Iterator[Slice]:
        """Yield of the slices what may have wanted changes."""
        wanted: Sequence[Slice] = [
            x for x in slices if self._ranges is None or x.range_id in self._ranges
        ]
        if self._keys is not None:
            wanted = access.holding(wanted, self._keys)
        since = self._starts(access, wanted)
        order, position = access.positions.order, access.positions.position
        for x in wanted:
            start, end = x.start, x.end
            if order(start) < self._first - 1:
                start = access.positions.beside(position(self._first - 1), end)
            if order(end) > self._last:  # a transaction is read whole
                last = position(max(0, self._last) + access.positions.step - 1)
                end = access.positions.beside(last, end)
            start = max(start, since.get(x.range_id, start), key=order)
            if order(start) < order(end):
                yield replace(x, start=start, end=end)

    def _starts(self, access: Access, slices: Sequence[Slice]) -> Mapping[RangeId, Position]:
        """Return where to begin, if the feed can say it: all versions of Cosmos DB cannot."""
        if self._since is not None:
            with suppress(FeedRefused, RangeUnknown):
                return access.starts([x.range_id for x in slices], self._since)
        return {}

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are wanted, which have no others beside them."""
        if (self._first, self._last) == (-_TOP, _TOP):
            return rows
        sequence: Any = rows.column("sequence")
        above = pc.greater_equal(sequence, self._first)
        return rows.filter(pc.and_(above, pc.less_equal(sequence, self._last)))
