"""When to checkpoint, and the one writer that does.

The newest position wins: while a write is under way, later positions replace each other,
and only the last is written. After a write the writer rests for a few times as long as the
write took, unless a call waits for it: so checkpoints cost a fixed part of the time at
the most, however fast batches come and however slow the container is. How much may be delivered
and not yet stored, which is what a crash repeats, is bounded by the worker (``room_for``).
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Never

from changefeed.feeds.feed import Continuation
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import ObserverSettings
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.runtime.light_event import LightEvent

_REST = 9.0  # times as long as the write took: so writing takes a tenth of the time
_LONGEST_REST = 0.1


class CheckpointPolicy:
    """Decides after each batch whether its end is to be written. Pure but for its counts."""

    def __init__(self, settings: ObserverSettings, *, now: float) -> None:
        self._settings = settings
        self._changes = 0
        self._since = now

    @property
    def automatic(self) -> bool:
        """Whether a batch counts as done when the observer returns from it."""
        return self._settings.checkpoint != "manual"

    def due(self, changes: int, *, now: float) -> bool:
        """Count ``changes`` more as done; say whether it is time."""
        self._changes += changes
        mode = self._settings.checkpoint
        due = (
            mode == "batch"
            or (mode == "count" and self._changes >= self._settings.checkpoint_count)
            or (mode == "interval" and now - self._since >= self._settings.checkpoint_interval)
        )
        if due:
            self._changes, self._since = 0, now
        return due


class Checkpointer:
    """Writes the positions of one range, in order, the newest only."""

    def __init__(self, owned: OwnedLease, events: HostEvents, retrier: Retrier) -> None:
        self._owned = owned
        self._events = events
        self._retrier = retrier
        self._wanted = owned.continuation
        self._reached = owned.continuation
        self._said = 0
        self._written = 0
        self._changes = 0  # done since the last position that was said
        self._changes_unwritten = 0  # below that position, and not known to be stored
        self._urgent = LightEvent()
        self._stopped = False
        self._clock = asyncio.get_running_loop().time
        self._idle = LightEvent()
        self._idle.set()
        self._news = LightEvent()
        self._progress = LightEvent()

    @property
    def unwritten(self) -> Continuation | None:
        """The newest position, if it is not stored yet."""
        return self._wanted if self._written < self._said else None

    @property
    def at_rest(self) -> bool:
        """Whether everything that was done is stored."""
        return self._written == self._said and self._reached == self._wanted

    @property
    def reached(self) -> Continuation:
        """The position below which everything is done; it only moves forward."""
        return self._reached

    def done(self, position: Continuation, *, changes: int) -> None:
        """Count everything below ``position`` as done: so many changes more than before.

        It is written with the next ``advance``.
        """
        assert changes >= 0, f"{changes} changes were done of {self._owned.range_id!r}"
        self._reached = position
        self._changes += changes

    async def room_for(self, changes: int, *, limit: int) -> None:
        """Wait until so many changes more make no more than ``limit`` that are not stored.

        What policy had put off is written for that; what is larger than ``limit`` waits
        until everything else is stored.
        """
        while 0 < self._changes + self._changes_unwritten > limit - changes:
            self.advance()
            if self._written == self._said:
                break  # the position has not moved: nothing to write makes room
            self._urgent.set()
            await self._progress.wait()

    def advance(self) -> int:
        """Have what was reached written soon; return its number for ``written``."""
        if self._reached != self._wanted:
            self._wanted = self._reached
            self._changes_unwritten += self._changes
            self._changes = 0
            self._say()
        return self._said

    def _say(self) -> None:
        """Have the position that is wanted written."""
        self._said += 1
        assert self._written < self._said, "what was just said cannot be stored yet"
        self._news.set()

    async def written(self, number: int | None = None) -> None:
        """Wait until that position, or a later one, is stored. Default: the last one."""
        number = self._said if number is None else number
        assert number <= self._said, f"position {number} is waited for, of {self._said}"
        while self._written < number:
            self._urgent.set()
            await self._progress.wait()

    async def stop(self) -> Continuation | None:
        """Write nothing more; return what the last write of the lease should carry."""
        self._stopped = True
        await self._idle.wait()
        return self.unwritten

    async def run(self) -> Never:
        """Be the writer. Raise ``LeaseLost`` or ``LeaseGone`` when nothing may be written."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._stopped:
                continue
            began = self._clock()
            await self._write()
            await self._rest(_REST * (self._clock() - began))

    async def _write(self) -> None:
        wanted, number, changes = self._wanted, self._said, self._changes_unwritten
        assert number > self._written, f"position {number} of {self._owned.range_id!r} again"
        self._idle.clear()
        await self._retrier.call("checkpoint", partial(self._owned.checkpoint, wanted))
        self._idle.set()
        self._events.checkpointed(self._owned.range_id, wanted)
        self._written = number
        self._changes_unwritten -= changes
        assert self._changes_unwritten >= 0, (
            f"{self._owned.range_id!r}: {changes} changes were stored, more than were done"
        )
        self._progress.set()
        self._progress = LightEvent()

    async def _rest(self, seconds: float) -> None:
        """Let more come together, unless a call waits for it to be written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_REST)):
                await self._urgent.wait()
        self._urgent.clear()
