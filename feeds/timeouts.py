"""A feed that always answers in time, or says that it did not."""

from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import (
    MAX_WAIT_FOR_NEWS,
    Change,
    Feed,
    FeedRange,
    Page,
    Position,
    RangeId,
    StartAt,
)
from changefeed.runtime.cancellation import in_time
from changefeed.runtime.patience import Patience

T = TypeVar("T")


class BoundedFeed(Feed):
    """Wraps a feed: a call that takes longer than ``timeout`` seconds raises
    ``FeedUnavailable``; one that waits for news may do so before that. So does a call that the
    server refuses, as long as there is ``patience`` for it.
    """

    def __init__(
        self, feed: Feed, *, timeout: float = 60.0, patience: Patience | None = None
    ) -> None:
        self._feed = feed
        self._timeout = timeout
        self._patience = patience or Patience(0)
        self.children_inherit_positions = feed.children_inherit_positions

    @property
    def identity(self) -> str:
        return self._feed.identity

    @property
    def request_units(self) -> float | None:
        return self._feed.request_units

    async def ranges(self) -> Sequence[FeedRange]:
        return await self.bounded("ranges", self._feed.ranges())

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        return await self.bounded("settle", self._feed.start(found, at), of=found.id)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        call = self._feed.read(found, after, limit)
        return await self.bounded("read", call, of=found.id)

    def position_after(self, change: Change) -> Position:
        return self._feed.position_after(change)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self.bounded("lags", self._feed.lags(at))

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        longest = MAX_WAIT_FOR_NEWS + self._timeout  # it waits for news, and then answers
        return await self.bounded("news", self._feed.news(at), within=longest)

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        return self._feed.split(found, into)

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return self._feed.merge(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return self._feed.sub_range(found, low, high)

    def bounded(
        self,
        name: str,
        call: Awaitable[T],
        *,
        of: RangeId | None = None,
        within: float | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Bound a call to the feed, also one by another contract of it."""
        seconds = self._timeout if within is None else within
        answer = in_time(call, seconds, who="the feed", name=name, unavailable=FeedUnavailable)
        return self._patience.ask((name, of), answer, FeedUnavailable)
