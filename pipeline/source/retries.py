"""A feed that is asked again until it answers: a few questions at a time, each bounded.

Throttling, a split or a short outage must not end a query, whose next start costs much
more than waiting. A long outage must: the supervisor of the query then reports it, and
starts it again later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import (
    BoundedFeed,
    Change,
    Feed,
    FeedRange,
    Page,
    Position,
    RangeId,
    StartAt,
)
from changefeed.feeds.raw_pages import RawPage, ReadsRawPages
from changefeed.runtime.calls import for_each

T = TypeVar("T")
Name = TypeVar("Name", bound=str)

_AT_ONCE: Final = 16
_FIRST_DELAY, _MAX_DELAY = 0.1, 5.0


class RetryingFeed(Feed):
    """Wraps a feed. ``FeedUnavailable`` is raised by what has no answer for ``patience``
    seconds; an attempt may take ``timeout``. ``once`` is the feed that is asked only once.
    """

    def __init__(self, feed: Feed, *, timeout: float, patience: float) -> None:
        self.once = BoundedFeed(feed, timeout=timeout)
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._patience = patience
        self.children_inherit_positions = feed.children_inherit_positions

    @property
    def identity(self) -> str:
        return self.once.identity

    async def ranges(self) -> Sequence[FeedRange]:
        return await self.ask(self.once.ranges)

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        return await self.ask(lambda: self.once.start(found, at))

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        return await self.ask(lambda: self.once.read(found, after, limit))

    async def fetch(
        self, pages: ReadsRawPages, found: FeedRange, after: Position, limit: int
    ) -> RawPage:
        """Ask for a page that is not cut, of the same feed by its other contract."""
        return await self.ask(
            lambda: self.once.bounded("read", pages.fetch(found, after, limit), of=found.id)
        )

    def position_after(self, change: Change) -> Position:
        return self.once.position_after(change)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self.ask(lambda: self.once.lags(at))

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await ``call()`` until the feed answers; it asks ``once``, not this."""
        async with self._few:
            return await retry_for(call, self._patience)


async def retry_for(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Await ``call()`` until it does not raise ``FeedUnavailable``, or a refusal that a server
    has answered, or so long.
    """

    async def attempt() -> T:
        return await call()

    retrying = AsyncRetrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(seconds),
        wait=_delay,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(attempt)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, FeedUnavailable) or getattr(error, "may_pass", False)


async def by_name(
    names: Iterable[Name], call: Callable[[Name], Awaitable[T]]
) -> Mapping[Name, T]:
    """Await ``call(name)`` for all names, a few at a time. The first error ends the others."""
    wanted = list(names)
    found = await for_each(wanted, call, at_once=_AT_ONCE)
    return dict(zip(wanted, found, strict=True))


def _delay(state: RetryCallState) -> float:
    """Grow with the attempts; never ask sooner than the other side wished."""
    error = state.outcome.exception() if state.outcome else None
    wished = getattr(error, "retry_after", None) or 0.0
    grown = _FIRST_DELAY * 2.0 ** min(state.attempt_number - 1, 10)
    return float(wished) + min(_MAX_DELAY, grown)
