"""When a broker looks for a newer catalog, and who waits for one.

At rest it looks at an interval, as each look is a request to the store. It looks at once when
a client knows more than it does, and again and again while an era is ending, when producers
wait.
"""

import asyncio
from collections.abc import Callable

from changefeed.brokers.pulse import Pulse
from changefeed.feeds.brokers.catalog_store import CatalogStore

_MIN_REST = 0.02


class CatalogWatch:
    """``clock`` counts suspended time.

    ``news`` beats when there is a newer catalog or a reason to look for one, and when brokers
    come or go.
    """

    def __init__(
        self, catalogs: CatalogStore, interval: float, clock: Callable[[], float]
    ) -> None:
        self.news = Pulse()
        self._catalogs = catalogs
        self._interval = interval
        self._clock = clock
        self._ending = (0, 0.0)
        catalogs.on_newer = self.news.beat

    async def rest(self) -> None:
        """Wait for news, or until it is time to look for a newer catalog."""
        await self.news.wait(asyncio.get_running_loop().time() + self.rest_seconds())

    def rest_seconds(self) -> float:
        """Return how long to rest from one look to the next: less while an era is ending.

        If that takes long, as where a row is damaged, the looks become rarer again.
        """
        era = self._catalogs.newest.era
        if era is None or era.state != "ending":
            return self._interval
        if self._ending[0] != era.number:
            self._ending = (era.number, self._clock())
        ending_for = self._clock() - self._ending[1]
        assert ending_for >= 0, f"era {era.number} ends in {-ending_for} s only"
        rest = min(max(ending_for / 4, _MIN_REST), self._interval)
        assert 0 < rest <= self._interval, f"a rest of {rest} s, of {self._interval}"
        return rest

    def hear_of(self, catalog: int) -> None:
        """Look for a newer catalog now, if a client knows this one and we do not."""
        if catalog > self._catalogs.newest.number:
            self.news.beat()

    async def wait_for_newer(self, catalog: int, seconds: float) -> None:
        """Wait until a newer catalog than this one is known, or for so many seconds."""
        until = asyncio.get_running_loop().time() + seconds
        while seconds and self._catalogs.newest.number <= catalog:
            if not await self.news.wait(until):
                return
