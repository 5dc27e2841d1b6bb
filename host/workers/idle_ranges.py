"""What waits at the ends of its ranges for news: one task in the place of all.

The feed is asked every ``feed.poll_interval`` for all that wait, and only those that it names
are read. So an idle range has no timer, and no task that wakes. A feed may hold the question
until there is news, as brokers do: it is asked again, for all, when more ranges wait. A feed
that cannot tell without reading names each range now and then (``Feed.news``).
"""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from random import Random
from typing import Never

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeId
from changefeed.host.retries import Retrier
from changefeed.host.settings import FeedSettings
from changefeed.runtime.light_event import LightEvent


class IdleRanges:
    """The ranges of one host whose ends were reached. ``run`` it while the host works."""

    def __init__(
        self, feed: Feed, settings: FeedSettings, *, retrier: Retrier, random: Random
    ) -> None:
        self._feed = feed
        self._settings = settings
        self._retrier = retrier
        self._random = random
        self._waiting: dict[RangeId, tuple[FeedRange, Continuation, LightEvent]] = {}
        self._any = asyncio.Event()
        self._more = asyncio.Event()
        """Something waits that the question under way is not about."""

    async def run(self) -> Never:
        """Ask for those that wait, until cancelled."""
        patience = self._settings.poll_interval
        while True:
            await self._any.wait()
            await self._sleep(self._settings.poll_interval)
            if not self._waiting:
                self._any.clear()
            elif await self._ask(patience):
                patience = self._settings.poll_interval
            else:
                patience *= 2  # else a slow feed would never come to answer

    async def _ask(self, patience: float) -> bool:
        """Wake what has news. Return whether the feed answered: it is not waited for when more
        ranges wait, and it has had so many seconds since.
        """
        self._more.clear()
        positions = {x: after for x, after, _ in self._waiting.values()}
        asking = asyncio.create_task(self._found(positions))
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

    async def _found(self, positions: Mapping[FeedRange, Continuation]) -> Collection[RangeId]:
        try:
            return await self._retrier.call("news", partial(self._feed.news, positions))
        except FeedError:
            return [x.id for x in positions]  # each reader finds out for itself, and says so

    async def news(self, found: FeedRange, after: Continuation, *, at_rest: bool) -> None:
        """Wait until it is time to read on after a position, where there was nothing.

        ``at_rest`` says that there is nothing to be done for the range but to wait for news.
        """
        if not at_rest:
            await self._sleep(self._settings.poll_interval)
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
