"""Where the partitions of a collection end, for all of their readers at once.

Each broker is asked in one request for all that it writes, and holds it until one of them has
come further. Where there are several brokers, all are asked first without waiting: so one that
always has news does not keep readers from those of the others.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from changefeed.feeds.errors import RangeRefused, RangeUnknown
from changefeed.feeds.feed import MAX_WAIT_FOR_NEWS, FeedRange, Position, RangeId
from changefeed.log.catalog.ranges import Partition
from changefeed.log.ids import sequence_in
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionNews
from changefeed.log.reading.source import Source
from changefeed.runtime.calls import gather_or_cancel

_Ask = Mapping[RangeId, int]
"""The sequences after which partitions are asked for."""
_Asks = Mapping[Sequence[str], _Ask]
"""Those of partitions of one broker, by its URL and those of the others."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How far a partition was read, or a part of it."""

    partition: Partition
    after: int
    is_closed: bool

    @property
    def name(self) -> RangeId:
        return self.partition.id

    def has_news(self, asked: _Ask, moved: Mapping[RangeId, PartitionNews]) -> bool:
        """Whether there is something, as the answer to what was asked says."""
        if self.is_closed:
            return True
        found = moved.get(self.name)
        if found is None:  # it ends where the first of its readers is
            return self.after != asked[self.name]
        return found.ended or found.last != self.after

    def lag(self, asked: _Ask, moved: Mapping[RangeId, PartitionNews]) -> int | None:
        last = moved[self.name].last if self.name in moved else asked[self.name]
        return None if last is None or last < self.after else last - self.after


class NewsReader:
    """Without ``waits`` no broker holds a question."""

    def __init__(self, source: Source, *, waits: bool) -> None:
        self._source = source
        self._held = MAX_WAIT_FOR_NEWS if waits else 0.0

    async def news(
        self, routes: Routes, positions: Mapping[FeedRange, Position]
    ) -> Collection[RangeId]:
        """See ``Feed.news``; wait for a first range that has news.

        What is closed, refused or not known is among them: its reader finds out.
        """
        readers = _readers(routes, positions)
        asks = _asks(routes, (x for x in readers.values() if not x.is_closed))
        asked = _joined(asks.values())

        def named(moved: Mapping[RangeId, PartitionNews]) -> Collection[RangeId]:
            names = [x.id for x in positions]
            return [x for x in names if x not in readers or readers[x].has_news(asked, moved)]

        certain = len(readers) < len(positions) or any(x.is_closed for x in readers.values())
        waits = bool(self._held) and not certain
        if not waits or len(asks) > 1:
            found = named(await self._all(asks))
            if found or not waits:
                return found
        return named(await self._first(asks))

    async def lags(
        self, routes: Routes, positions: Mapping[FeedRange, Position]
    ) -> Mapping[RangeId, int]:
        """Return how many changes lie behind each position, where that can be said."""
        readers = _readers(routes, positions)
        asks = _asks(routes, readers.values())
        asked, moved = _joined(asks.values()), await self._all(asks)
        lags = {name: x.lag(asked, moved) for name, x in readers.items()}
        return {name: lag for name, lag in lags.items() if lag is not None}

    async def _all(self, asks: _Asks) -> Mapping[RangeId, PartitionNews]:
        """Ask each broker for what has moved by now."""
        found = (self._source.news(x, wait=0.0) for x in asks.values())
        return _joined(await gather_or_cancel(*found))

    async def _first(self, asks: _Asks) -> Mapping[RangeId, PartitionNews]:
        """Wait for the first broker with an answer that says something."""
        asking = {
            asyncio.create_task(self._source.news(x, wait=self._held)) for x in asks.values()
        }
        rest = asking
        try:
            while rest:
                done, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
                found = _joined(x.result() for x in done)
                if found:
                    return found
        finally:
            for x in asking:
                x.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return {}


def _readers(
    routes: Routes, positions: Mapping[FeedRange, Position]
) -> Mapping[RangeId, _Reader]:
    """Return those of ranges that are known, at positions that can be read."""
    found: dict[RangeId, _Reader] = {}
    for wanted, position in positions.items():
        with suppress(RangeRefused, RangeUnknown):
            partition = routes.holding(wanted.id)
            after = sequence_in(wanted.id, position, routes.identity)
            closed = not routes.is_open(partition)
            found[wanted.id] = _Reader(partition=partition, after=after, is_closed=closed)
    return found


def _asks(routes: Routes, readers: Iterable[_Reader]) -> _Asks:
    """Return the least sequence that was read of each partition, by whom to ask."""
    asks: dict[Sequence[str], dict[RangeId, int]] = {}
    for x in readers:
        ask = asks.setdefault(routes.to_read(x.partition), {})
        ask[x.name] = min(x.after, ask.get(x.name, x.after))
    return asks


def _joined(parts: Iterable[Mapping[RangeId, T]]) -> Mapping[RangeId, T]:
    return {name: x for part in parts for name, x in part.items()}
