"""Tries again, later and later.

A wrapper is an observer around an observer: it takes one, is one, and knows neither the
host nor what it wraps. Each does one thing and has a file of its own, so that the host
can put around the user's observer what the settings ask for, the innermost first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import tenacity

from changefeed.feeds.feed import Change
from changefeed.observers.error_text import describe
from changefeed.observers.errors import ObserverError, ObserverFailed, ran_out_of_memory
from changefeed.observers.observer import CloseReason, Context, Observer

_ATTEMPTS_WITHOUT_MEMORY = 3
FIRST_DELAY = 0.5
"""In seconds; each one that follows is twice as long."""
JITTER = 0.5
"""The part of a delay that chance may take away."""

OnRetry = Callable[[int, BaseException, float], None]
"""Called after a failed attempt: which (from 1), its error, and the seconds until the next."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits some seconds. It may raise ``ObserverFailed`` when waiting has lost its point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How often and how late an observer that failed is called again: after half a second,
    and each time after twice as long, up to ``max_delay`` seconds. Chance takes away up to half
    of each delay. ``attempts`` counts the first one too; ``None`` means for ever, and then
    nothing that follows on the last attempt ever happens.
    """

    max_delay: float = 60.0
    attempts: int | None = 10

    def __post_init__(self) -> None:
        if self.max_delay <= 0:
            raise ValueError("max_delay must be more than 0")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("attempts must be 1 or more, or None for no limit")


def _ignore(attempt: int, error: BaseException, delay: float) -> None:
    """Do nothing."""


class Retrying:
    """Calls ``open`` and ``process`` again while they raise; never ``close``.

    When the attempts are used up it raises ``ObserverFailed``; after three that ran out of
    memory, however many there are. An ``ObserverError`` from within passes through: somebody
    there has decided already. Cancellation ends it at once, also in the middle of a delay. It
    logs nothing: ``on_retry`` is called.
    """

    def __init__(
        self,
        observer: Observer,
        settings: RetrySettings,
        *,
        random: Random,
        on_retry: OnRetry = _ignore,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._observer = observer
        self._settings = settings
        self._random = random
        self._on_retry = on_retry
        self._sleep = sleep
        self._longest = tenacity.wait_exponential(
            multiplier=FIRST_DELAY, max=settings.max_delay
        )

    async def open(self, context: Context) -> None:
        await self._try(context, None, partial(self._observer.open, context))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        sequences = (changes[0].sequence, changes[-1].sequence)
        await self._try(context, sequences, partial(self._observer.process, context, changes))

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._observer.close(context, reason)

    async def _try(
        self,
        context: Context,
        sequences: tuple[int, int] | None,
        call: Callable[[], Awaitable[None]],
    ) -> None:
        try:
            await call()  # nearly always enough, and much cheaper than what follows
        except Exception as error:
            if not _is_worth_a_retry(error):
                raise
            first = error
        else:
            return
        # Not within the handler: to later errors, the first would be what they came of.
        await self._try_again(context, sequences, call, first)

    async def _try_again(
        self,
        context: Context,
        sequences: tuple[int, int] | None,
        call: Callable[[], Awaitable[None]],
        first: Exception,
    ) -> None:
        errors = [first]  # the first attempt is replayed, so that it counts as one

        async def attempt() -> None:  # tenacity awaits only what it knows to be async
            if errors:
                raise errors.pop()
            await call()

        try:
            await self._attempts()(attempt)
        except tenacity.RetryError as error:
            last = error.last_attempt
            cause = last.exception()
            raise ObserverFailed(
                context.range.id,
                sequences,
                last.attempt_number,
                "no attempt" if cause is None else describe(cause),
            ) from cause

    def _attempts(self) -> tenacity.AsyncRetrying:
        limit = self._settings.attempts
        return tenacity.AsyncRetrying(
            sleep=self._sleep,
            stop=tenacity.stop_any(
                tenacity.stop_never if limit is None else tenacity.stop_after_attempt(limit),
                _StopWithoutMemory(_ATTEMPTS_WITHOUT_MEMORY),
            ),
            wait=self._delay,
            retry=tenacity.retry_if_exception(_is_worth_a_retry),
            before_sleep=self._tell,
        )

    def _delay(self, state: tenacity.RetryCallState) -> float:
        return self._longest(state) * (1 - JITTER * self._random.random())

    def _tell(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            self._on_retry(state.attempt_number, error, state.upcoming_sleep)


class _StopWithoutMemory(tenacity.stop_after_attempt):
    """Stop where memory is what is missing, and time has not helped: it may be leaking."""

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        return error is not None and ran_out_of_memory(error) and super().__call__(state)


def _is_worth_a_retry(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, ObserverError)
