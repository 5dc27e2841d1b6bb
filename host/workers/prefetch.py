"""Reading ahead: the next pages of a range are fetched while the observer works."""

import asyncio
from collections.abc import Callable
from functools import partial

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Continuation, Feed, Page, RangeEnded, RangeId
from changefeed.host.retries import Retrier
from changefeed.host.settings import FeedSettings
from changefeed.host.workers.idle_ranges import IdleRanges, Pause
from changefeed.host.workers.load_meter import LoadMeter


class Prefetcher:
    """A bounded queue of pages of one range, from one position on.

    Limits: what was fetched and not delivered when the reading stops is dropped; the
    next reader of the range fetches it again.
    """

    def __init__(
        self,
        feed: Feed,
        range_id: RangeId,
        settings: FeedSettings,
        *,
        retrier: Retrier,
        idle: IdleRanges,
        at_rest: Callable[[], bool],
        meter: LoadMeter,
    ) -> None:
        self._feed = feed
        self._range_id = range_id
        self._settings = settings
        self._retrier = retrier
        self._idle = idle
        self._pause = Pause(at_rest)
        self._meter = meter
        self._pages: asyncio.Queue[Page | RangeEnded | RangeRefused | None] = asyncio.Queue(
            settings.read_ahead
        )
        self._stopped = False

    async def next(self) -> Page | RangeEnded | None:
        """Return the next page, the news that the range has ended, or ``None`` once stopped.

        Raise ``RangeRefused`` where the range cannot be read on.
        """
        page = None if self._stopped else await self._pages.get()
        if isinstance(page, RangeRefused):
            raise page
        return page

    def stop(self) -> None:
        """Drop what was fetched; a call that waits in ``next`` gets ``None``."""
        self._stopped = True
        while not self._pages.empty():
            self._pages.get_nowait()
        self._pages.put_nowait(None)

    async def fill(self, after: Continuation) -> None:
        """Fetch page after page until the range ends, is refused, or the reading is stopped."""
        while not self._stopped:
            try:
                page = await self._retrier.call("read", partial(self._read, after))
            except (RangeEnded, RangeRefused) as end:
                await self._pages.put(end)
                return
            await self._pages.put(page)
            after = page.continuation
            if not page.changes:
                await self._idle.news(self._range_id, after, self._pause)

    async def _read(self, after: Continuation) -> Page:
        clock, limit = asyncio.get_running_loop().time, self._settings.page_size
        began = clock()
        page = await self._feed.read(self._range_id, after, limit)
        took = clock() - began
        self._meter.has_read(took, changes=len(page.changes), limit=limit)
        if page.changes or took >= self._settings.poll_interval:
            self._pause.reset()  # there was something, or the feed waited for it
        return page
