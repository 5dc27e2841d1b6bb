"""Puts a change aside: to the dead letters, lastingly, before anything behind it goes on."""

import asyncio
import time
from collections.abc import Callable

from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    DeadLetters,
    Failure,
    Origin,
)
from changefeed.observers.error_text import describe, text_of
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.observer import Context
from changefeed.runtime.cancellation import keep_cancellation

_PUT_TIMEOUT = 30.0

OnDeadLetter = Callable[[DeadLetter], None]
"""Called with each change that was put aside."""


def _nobody(letter: DeadLetter) -> None:
    """Report nothing."""


class Aside:
    """Where the changes of one observer are put."""

    def __init__(
        self,
        letters: DeadLetters,
        origin: Origin,
        *,
        on_dead_letter: OnDeadLetter = _nobody,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._letters = letters
        self._origin = origin
        self._on_dead_letter = on_dead_letter
        self._wall = wall

    async def put(
        self, context: Context, change: Change, failure: Failure, *, attempts: int
    ) -> None:
        """Put a change aside, and acknowledge it.

        Raise ``AttemptFailed`` if it could not be put to the dead letters.
        """
        letter = DeadLetter(
            feed=self._origin.feed,
            observer=self._origin.observer,
            fleet=self._origin.fleet,
            change=change,
            failure=failure,
            attempts=attempts,
            host=context.host,
            epoch=context.epoch,
            failed_us=int(self._wall() * 1_000_000),
        )
        try:
            async with asyncio.timeout(_PUT_TIMEOUT):
                await keep_cancellation(self._letters.put(letter))
        except Exception as error:  # whatever a place of letters is made of
            text = text_of(error) or describe(error)
            reason = f"{failure.text}; and it could not be put to the dead letters: {text}"
            raise AttemptFailed(failure.kind, reason) from error
        context.acknowledge(change)
        self._on_dead_letter(letter)
