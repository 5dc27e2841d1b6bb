"""Asking again: growing, jittered delays around calls that may be answered later."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from changefeed.feeds.errors import FeedUnavailable
from changefeed.host.events import HostEvents
from changefeed.runtime.errors import StoreUnavailable

T = TypeVar("T")
_FIRST_DELAY, _MAX_DELAY = 0.2, 10.0
_LATER = (FeedUnavailable, StoreUnavailable)


class Retrier:
    """Asks the feed and the stores again until they answer. The caller bounds it."""

    def __init__(self, events: HostEvents, random: Random) -> None:
        self._events = events
        self._random = random

    async def call(
        self,
        operation: str,
        call: Callable[[], Awaitable[T]],
        *,
        longest_delay: float = _MAX_DELAY,
    ) -> T:
        """Await ``call()`` until it raises no ``FeedUnavailable`` and no
        ``StoreUnavailable``; ``operation`` names it in the log.
        """
        failures = 0
        while True:
            try:
                return await call()
            except _LATER as error:
                # Never sooner than the other side wished.
                grown = min(longest_delay, _FIRST_DELAY * 2.0 ** min(failures, 10))
                delay = (error.retry_after or 0.0) + grown * self._random.uniform(0.5, 1.0)
                self._events.retrying(operation, error, delay)
            failures += 1
            await asyncio.sleep(delay)
