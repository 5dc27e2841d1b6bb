"""Puts a change aside: to the dead letters, lastingly, before anything behind it goes on."""

import asyncio
import time
from dataclasses import dataclass

from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    DeadLetters,
    LetterError,
    Origin,
)
from changefeed.observers.error_text import describe, text_of
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.observer import Context
from changefeed.runtime.calls import keep_cancellation

_PUT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Where the changes of one observer are put. ``origin`` distinguishes its letters from
    those of others in the same place.
    """

    letters: DeadLetters
    origin: Origin

    async def put(
        self, context: Context, change: Change, failure: LetterError, *, attempts: int
    ) -> DeadLetter:
        """Return its letter. Raise ``AttemptFailed`` if it could not be put there."""
        letter = DeadLetter(
            feed=self.origin.feed,
            observer=self.origin.observer,
            fleet=self.origin.fleet,
            change=change,
            failure=failure,
            attempts=attempts,
            host=context.host,
            epoch=context.epoch,
            failed_us=int(time.time() * 1_000_000),
        )
        try:
            async with asyncio.timeout(_PUT_TIMEOUT):
                await keep_cancellation(self.letters.put(letter))
        except Exception as error:  # whatever a place of letters is made of
            text = text_of(error) or describe(error)
            reason = f"{failure.text}; and it could not be put to the dead letters: {text}"
            raise AttemptFailed(failure.kind, reason) from error
        return letter
