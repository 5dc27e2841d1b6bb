"""Reading ahead: the next page of a range is fetched while the observer works.

At the end of its range a reader waits for news, in one task for all of a host: the feed is
asked every ``feed.poll_interval`` for all that wait, and only those that it names are read. So
an idle range has no timer, and no task that wakes. A feed may hold the question until there is
news, as brokers do: it is asked again, for all, when more ranges wait. A feed that cannot tell
without reading names each range now and then (``Feed.news``).
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Never

from changefeed.feeds.errors import FeedError, FeedUnavailable, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, Page, Position, RangeEnded, RangeId
from changefeed.host.failures import Retrier
from changefeed.host.load_meter import LoadMeter
from changefeed.host.settings import FeedSettings
from changefeed.runtime.light_event import LightEvent

_UNKNOWN_FOR = 30.0
"""Seconds until a range that the feed does not know counts as none of it: what it lists may
come from a replica that lags behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A range in which there was nothing behind a position, at a moment."""

    found: FeedRange
    after: Position
    at: float
    news: LightEvent


class IdleRanges:
    """The ranges of one host whose ends were reached. ``run`` it while the host works."""

    def __init__(
        self, feed: Feed, settings: FeedSettings, *, retrier: Retrier, random: Random
    ) -> None:
        self._feed = feed
        self._settings = settings
        self._retrier = retrier
        self._random = random
        self._waiting: dict[RangeId, _Waiting] = {}
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
        positions = {x.found: x.after for x in self._waiting.values()}
        news = partial(self._feed.news, positions)
        asking = asyncio.create_task(self._retrier.call("news", news))
        more = asyncio.create_task(self._more.wait())
        found: Collection[RangeId] = ()
        try:
            await asyncio.wait({asking, more}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({asking}, timeout=patience)
            if asking.done():
                found = asking.result()
        except FeedError:
            found = [x.id for x in positions]  # each reader finds out for itself, and says so
        finally:
            asking.cancel()
            more.cancel()
            await asyncio.gather(asking, more, return_exceptions=True)
        for range_id in found:
            waiting = self._waiting.get(range_id)
            if waiting is not None and waiting.found in positions:
                waiting.news.set()
        return not asking.cancelled()

    async def news(self, found: FeedRange, after: Position, *, at_rest: bool) -> None:
        """Wait until it is time to read on after a position, where there was nothing.

        ``at_rest`` says that there is nothing to be done for the range but to wait for news.
        """
        if not at_rest:
            await self._sleep(self._settings.poll_interval)
            return
        news = LightEvent()
        now = asyncio.get_running_loop().time()
        waiting = _Waiting(found=found, after=after, at=now, news=news)
        self._waiting[found.id] = waiting
        self._any.set()
        self._more.set()
        try:
            await news.wait()
        finally:
            if self._waiting.get(found.id) is waiting:
                del self._waiting[found.id]

    def had_nothing(self, range_id: RangeId, after: Position, *, since: float) -> bool:
        """Whether its reader has found nothing behind a position since then."""
        waiting = self._waiting.get(range_id)
        return waiting is not None and waiting.after == after and waiting.at >= since

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._random.uniform(0.9, 1.1))


class Reader:
    """The pages of one range, from one position on, each fetched when the last one is taken.

    ``came`` is called when there is another page. Limits: what was fetched and not delivered
    when the reading stops is dropped; the next reader of the range fetches it again.
    """

    def __init__(
        self,
        feed: Feed,
        found: FeedRange,
        settings: FeedSettings,
        *,
        retrier: Retrier,
        idle: IdleRanges,
        at_rest: Callable[[], bool],
        meter: LoadMeter,
        came: Callable[[], None],
    ) -> None:
        self._feed = feed
        self._range = found
        self._settings = settings
        self._retrier = retrier
        self._idle = idle
        self._at_rest = at_rest
        self._meter = meter
        self._came = came
        self._page: Page | RangeEnded | RangeRefused | None = None
        self._moved = LightEvent()  # a page went, or the reading was stopped
        self._stopped = False
        self._unknown_since: float | None = None

    def next_nowait(self) -> Page | RangeEnded | None:
        """Return the next page, the news that the range has ended, or ``None`` if there is no
        page yet. Raise ``RangeRefused`` where the range cannot be read on.
        """
        page, self._page = self._page, None
        if page is None:
            return None
        self._moved.set()
        if isinstance(page, RangeRefused):
            raise page
        return page

    def drop(self) -> None:
        """Drop what was fetched."""
        self._page = None
        self._moved.set()

    def stop(self) -> None:
        """Drop what was fetched, and fetch nothing more."""
        self._stopped = True
        self.drop()

    async def fill(self, after: Position) -> None:
        """Fetch page after page until the range ends, is refused, or the reading is stopped."""
        while not self._stopped:
            try:
                read = partial(self._read, after, self._settings.page_size)
                page = await self._retrier.call("read", read)
            except (RangeEnded, RangeRefused) as end:
                await self._put(end)
                return
            if page.changes and self._settings.batch_wait:
                page = await self._collected(page)
            await self._put(page)
            after = page.position
            if not page.changes:
                await self._idle.news(self._range, after, at_rest=self._at_rest())

    async def _collected(self, page: Page) -> Page:
        """Return a page with what comes behind it for a while, as large as pages may be."""
        now, most = asyncio.get_running_loop().time, self._settings.page_size
        until = now() + self._settings.batch_wait
        changes, position = [*page.changes], page.position
        while not self._stopped and len(changes) < most and now() < until:
            try:
                async with asyncio.timeout_at(until):
                    more = await self._read(position, most - len(changes))
            except (RangeEnded, FeedError, TimeoutError):
                break  # the next call is told again
            changes += more.changes
            position = more.position
            if not more.changes:
                await asyncio.sleep(min(self._settings.poll_interval, until - now()))
        return Page(changes=changes, position=position)

    async def _put(self, page: Page | RangeEnded | RangeRefused) -> None:
        """Wait for room; drop what comes after the reading was stopped."""
        while self._page is not None and not self._stopped:
            self._moved.clear()
            await self._moved.wait()
        if not self._stopped:
            self._page = page
            self._came()

    async def _read(self, after: Position, limit: int) -> Page:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            page = await self._feed.read(self._range, after, limit)
        except RangeUnknown as unknown:
            raise self._unknown(unknown, at=began) from unknown
        self._unknown_since = None
        took = clock() - began
        self._meter.has_read(took, changes=len(page.changes), limit=limit)
        return page

    def _unknown(self, unknown: RangeUnknown, *, at: float) -> FeedError:
        """Return what to make of a range that the feed does not know at this moment."""
        if self._unknown_since is None:
            self._unknown_since = at
        if at - self._unknown_since < _UNKNOWN_FOR:
            return FeedUnavailable(str(unknown))
        return RangeRefused(
            self._range.id,
            f"the feed has no range {self._range.id!r}: its lease is of another feed, or was "
            f"edited. Delete the lease, or resume the range once the feed has it",
        )
