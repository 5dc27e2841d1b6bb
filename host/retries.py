"""Asking again: growing, jittered delays around calls that may be answered later."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

from changefeed.host.events import HostEvents
from changefeed.runtime.delays import GrowingDelays
from changefeed.runtime.errors import Unavailable

T = TypeVar("T")
_FIRST_DELAY, _MAX_DELAY = 0.2, 10.0


class Retrier:
    """Asks the feed and the stores again until they answer. The caller bounds it."""

    def __init__(self, events: HostEvents, random: Random) -> None:
        self._events = events
        self._delays = GrowingDelays(_FIRST_DELAY, _MAX_DELAY, random)

    async def call(
        self,
        operation: str,
        call: Callable[[], Awaitable[T]],
        *,
        longest_delay: float = _MAX_DELAY,
    ) -> T:
        """Await ``call()`` until it raises no ``Unavailable``; ``operation`` names it in the
        log.
        """
        tries = 0
        while True:
            try:
                return await call()
            except Unavailable as error:
                tries += 1
                delay = replace(self._delays, longest=longest_delay).after(tries)
                delay += error.retry_after or 0.0  # never sooner than the other side wished
                self._events.retrying(operation, error, delay)
            await asyncio.sleep(delay)
