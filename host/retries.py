"""Asking again: growing, jittered delays around calls that may be answered later."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from changefeed.feeds.errors import FeedUnavailable
from changefeed.host.events import HostEvents
from changefeed.runtime.errors import StoreUnavailable

T = TypeVar("T")
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 10.0
_LATER = (FeedUnavailable, StoreUnavailable)


class Retrier:
    """Asks the feed and the stores again until they answer. The caller bounds it."""

    def __init__(self, events: HostEvents, random: Random) -> None:
        self._events = events
        self._random = random

    async def call(
        self,
        doing: str,
        operation: Callable[[], Awaitable[T]],
        *,
        longest_delay: float = _LONGEST_DELAY,
    ) -> T:
        """Await ``operation()`` until it raises no ``FeedUnavailable`` and no
        ``StoreUnavailable``; ``doing`` names it in the log.
        """
        try:
            return await operation()  # nearly always enough, and much cheaper than what follows
        except _LATER as error:
            return await self._call_again(doing, operation, error, longest_delay)

    async def _call_again(
        self,
        doing: str,
        operation: Callable[[], Awaitable[T]],
        error: Exception,
        longest_delay: float,
    ) -> T:
        errors = [error]

        async def replay_then_call() -> T:
            if errors:
                raise errors.pop()
            return await operation()

        def log(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if error is not None:
                self._events.retrying(doing, error, state.upcoming_sleep)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_LATER),
            wait=partial(self._delay, longest_delay),
            sleep=asyncio.sleep,
            before_sleep=log,
            reraise=True,
        )
        return await retrying(replay_then_call)

    def _delay(self, longest: float, state: RetryCallState) -> float:
        """Grow with the attempts; never ask sooner than the other side wished."""
        error = state.outcome.exception() if state.outcome else None
        wished = getattr(error, "retry_after", None) or 0.0
        grown = min(longest, _FIRST_DELAY * 2.0 ** min(state.attempt_number - 1, 10))
        return float(wished) + grown * self._random.uniform(0.5, 1.0)


def unwrap_single(error: Exception) -> Exception:
    """Return the one error in a group of one, however deep."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
