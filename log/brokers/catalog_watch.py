"""When a broker looks for a newer catalog, and who waits for one.

Each look is a request to the store. At rest a broker looks three times in the time after which
it would be taken for dead, as others tell it of news; at an interval where it may not hear
them; at once when somebody knows more than it does; and again and again while an era is ending,
when producers wait.
"""

import asyncio
from collections.abc import Callable

from changefeed.log.brokers.notifier import Notifier
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.core_settings import CoreSettings

_MIN_REST = 0.02


class CatalogWatch:
    """``clock`` counts suspended time.

    ``news`` notifies when there is a newer catalog or a reason to look for one, and when
    brokers come or go.
    """

    def __init__(
        self, catalogs: CatalogStore, settings: CoreSettings, clock: Callable[[], float]
    ) -> None:
        self.news = Notifier()
        self.hints = 0
        """How often others have named a newer catalog than this broker knew."""
        self._catalogs = catalogs
        self._interval = settings.catalog_interval
        self._longest = settings.expiration / 3
        self._clock = clock
        self._ending = (0, 0.0)
        catalogs.on_newer = self.news.notify

    async def rest(self, *, calm: bool = False) -> None:
        """Wait for news, or until it is time to look again.

        ``calm``: others tell of newer catalogs, so one is looked for less often.
        """
        rest, era = self.rest_seconds(), self._catalogs.newest.era
        if calm and era is not None and era.state == "open":
            due = self._catalogs.confirmed_at + self._longest
            rest = max(rest, due - self._clock())
        await self.news.wait(asyncio.get_running_loop().time() + rest)

    def rest_seconds(self) -> float:
        """Return how long to rest from one look to the next: less while an era is ending.

        If that takes long, as where a row is damaged, the looks become rarer again.
        """
        ending_for = self.ending_for()
        if ending_for is None:
            return self._interval
        rest = min(max(ending_for / 4, _MIN_REST), self._interval)
        assert 0 < rest <= self._interval, f"a rest of {rest} s, of {self._interval}"
        return rest

    def ending_for(self) -> float | None:
        """Return for how long this broker has seen the newest era ending, if it is."""
        era = self._catalogs.newest.era
        if era is None or era.state != "ending":
            return None
        if self._ending[0] != era.number:
            self._ending = (era.number, self._clock())
        ending_for = self._clock() - self._ending[1]
        assert ending_for >= 0, f"era {era.number} ends in {-ending_for} s only"
        return ending_for

    def hear_of(self, catalog: int) -> None:
        """Look for a newer catalog now, if somebody knows this one and we do not."""
        if catalog > self._catalogs.newest.number:
            self.hints += 1
            self.news.notify()

    async def wait_for_newer(self, catalog: int, seconds: float) -> None:
        """Wait until a newer catalog than this one is known, or for so many seconds."""
        until = asyncio.get_running_loop().time() + seconds
        while seconds and self._catalogs.newest.number <= catalog:
            if not await self.news.wait(until):
                return
