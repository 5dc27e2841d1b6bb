"""Asking again: growing, jittered delays around calls that may be answered later."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from feeds.errors import FeedUnavailable
from leases.errors import ContainerUnavailable

from .journal import Journal

T = TypeVar("T")
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 10.0


class Patience:
    """Asks the feed and the container again until they answer. Whoever calls bounds it."""

    def __init__(self, journal: Journal, random: Random) -> None:
        self._journal = journal
        self._random = random

    async def ask(self, doing: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await ``call()`` until it raises neither ``FeedUnavailable`` nor
        ``ContainerUnavailable``; ``doing`` names it in the log.
        """

        def tell(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if error is not None and state.next_action is not None:
                self._journal.retrying(doing, error, state.next_action.sleep)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((FeedUnavailable, ContainerUnavailable)),
            wait=self._delay,
            sleep=asyncio.sleep,
            before_sleep=tell,
            reraise=True,
        )
        return await retrying(call)

    def _delay(self, state: RetryCallState) -> float:
        """Grow with the attempts; never ask sooner than the other side wished."""
        error = state.outcome.exception() if state.outcome else None
        wished = getattr(error, "retry_after", None) or 0.0
        grown = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(state.attempt_number - 1, 10))
        return float(wished) + grown * self._random.uniform(0.5, 1.0)
