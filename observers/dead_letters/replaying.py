"""Gives a change that was put aside to an observer again, once its cause is mended.

A fresh observer is opened for it, outside any lease, and closed after. Later changes of
the same key have been handled meanwhile: an observer that is replayed to must be able to
recognize an older change, or its user has to.
"""

import asyncio
from dataclasses import dataclass, field

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.call import CalledObserver
from changefeed.observers.dead_letters.letter import DeadLetter, DeadLetters
from changefeed.observers.observer import CloseReason, ObserverFactory
from changefeed.runtime.errors import UserError

_ACKNOWLEDGE_TIMEOUT = 60.0


async def replay(
    letters: DeadLetters, letter: DeadLetter, make: ObserverFactory, *, manual: bool = False
) -> None:
    """Let a fresh observer handle the letter's change, and forget the letter then.

    With ``manual`` it is done when the observer has acknowledged it, for which it has a
    minute. What the observer raises, or ``TimeoutError``, comes out, and the letter stays.
    Raise ``OSError`` if the letter was handled and could not be removed, and
    ``UserError`` for a change that no observer can be given.
    """
    if letter.change.unreadable is not None:
        raise UserError(
            f"the feed could not read this change ({letter.change.unreadable}), so no observer "
            f"can handle it: mend the item, and discard the letter"
        )
    context = _ReplayContext(
        range=FeedRange(id=letter.range_id), host=letter.host, epoch=letter.epoch
    )
    observer = CalledObserver(make())
    reason = CloseReason.FAILED
    try:
        await observer.open(context)
        await observer.process(context, [letter.change])
        if manual:
            async with asyncio.timeout(_ACKNOWLEDGE_TIMEOUT):
                await context.done.wait()
        reason = CloseReason.STOPPING
    finally:
        await observer.close(context, reason)
    await letters.remove(letter.id)


@dataclass(kw_only=True)
class _ReplayContext:
    """There is one change and no checkpoint. The epoch is the one it failed under."""

    range: FeedRange
    host: str
    epoch: int
    handing_over: bool = True  # nothing more will come
    reset_epoch: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def checkpoint_with(self, _: object) -> None:
        """Say that nothing keeps it."""

    def acknowledge(self, change: Change) -> None:
        del change  # there is only one
        self.loop.call_soon_threadsafe(self.done.set)

    def checkpoint(self, change: Change) -> None:
        self.acknowledge(change)

    async def flush(self) -> None:
        """Have nothing to wait for."""
