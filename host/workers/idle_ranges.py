"""What waits at the ends of its ranges for news: one task in the place of all.

A feed that answers for many ranges in one call (``AnswersForMany``) is asked every
``feed.poll_interval`` for all that wait, and only those that have news are read. So an idle
range has no timer, and no task that wakes. A feed may hold the question until there is news, as
brokers do: it is asked again, for all, when more ranges wait. Other feeds are asked range by
range, and for one that stays idle ever less often, up to ``feed.max_poll_interval``.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import AnswersForMany, Continuation, Feed, FeedRange, RangeId
from changefeed.host.retries import Retrier
from changefeed.host.settings import FeedSettings
from changefeed.runtime.light_event import LightEvent

_GROWTH = 1.5


class IdleRanges:
    """The ranges of one host whose ends were reached. ``run`` it while the host works."""

    def __init__(
        self, feed: Feed, settings: FeedSettings, *, retrier: Retrier, random: Random
    ) -> None:
        self._feed = feed if isinstance(feed, AnswersForMany) else None
        self._settings = settings
        self._retrier = retrier
        self._random = random
        self._waiting: dict[RangeId, tuple[FeedRange, Continuation, LightEvent]] = {}
        self._any = asyncio.Event()
        self._more = asyncio.Event()
        """Something waits that the question under way is not about."""

    async def run(self) -> None:
        """Ask for those that wait, until cancelled; end at once if the feed cannot say."""
        feed, patience = self._feed, self._settings.poll_interval
        while feed is not None:
            await self._any.wait()
            await self._sleep(self._settings.poll_interval)
            if not self._waiting:
                self._any.clear()
            elif await self._ask(feed, patience):
                patience = self._settings.poll_interval
            else:
                patience *= 2  # else a slow feed would never come to answer

    async def _ask(self, feed: AnswersForMany, patience: float) -> bool:
        """Wake what has news. Return whether the feed answered: it is not waited for when more
        ranges wait, and it has had so many seconds since.
        """
        self._more.clear()
        positions = {x: after for x, after, _ in self._waiting.values()}
        asking = asyncio.create_task(self._found(feed, positions))
        more = asyncio.create_task(self._more.wait())
        try:
            await asyncio.wait({asking, more}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({asking}, timeout=patience)
            found = asking.result() if asking.done() else ()
        finally:
            asking.cancel()
            more.cancel()
            await asyncio.gather(asking, more, return_exceptions=True)
        for range_id in found:
            if range_id in self._waiting and self._waiting[range_id][0] in positions:
                self._waiting[range_id][2].set()
        return not asking.cancelled()

    async def _found(
        self, feed: AnswersForMany, positions: Mapping[FeedRange, Continuation]
    ) -> Collection[RangeId]:
        try:
            return await self._retrier.call("news", partial(feed.news, positions))
        except FeedError:
            return [x.id for x in positions]  # each reader finds out for itself, and says so

    async def news(self, found: FeedRange, after: Continuation, pause: "Pause") -> None:
        """Wait until it is time to read on after a position, where there was nothing.

        ``pause`` is that of the range, and says whether it is wholly at rest.
        """
        if self._feed is None or not pause.at_rest():
            await self._sleep(pause.next(self._settings))
            return
        news = LightEvent()
        waiting = self._waiting[found.id] = found, after, news
        self._any.set()
        self._more.set()
        try:
            await news.wait()
        finally:
            if self._waiting.get(found.id) is waiting:
                del self._waiting[found.id]

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._random.uniform(0.9, 1.1))


class Pause:
    """How long one range waits from an empty read to the next; it grows.

    ``at_rest`` says whether there is nothing to be done for the range but to wait for news.
    """

    def __init__(self, at_rest: Callable[[], bool]) -> None:
        self.at_rest = at_rest
        self._last: float | None = None

    def reset(self) -> None:
        """Begin with the shortest again: something was there, or the feed waited itself."""
        self._last = None

    def next(self, settings: FeedSettings) -> float:
        """Return the seconds until the next read."""
        if self._last is None or not self.at_rest():
            self._last = settings.poll_interval
        else:
            self._last = min(self._last * _GROWTH, settings.longest_poll_interval)
        assert settings.poll_interval <= self._last <= settings.longest_poll_interval, (
            f"the next read is {self._last} s away"
        )
        return self._last
