"""What of one range is done, when it is written, and the one writer of it.

Changes are acknowledged one by one and in any order, or all up to one of them, or by the return
of the observer. Only the unbroken beginning counts: its last change is the low watermark.

The newest position wins: while a write is under way, later positions replace each other,
and only the last is written. After a write the writer rests for a few times as long as the
write took, unless a call waits for it: so checkpoints cost a fixed part of the time at
the most, however fast batches come and however slow the container is. Once everything is
written, no task is left. How much may be delivered and not yet stored, which is what a crash
repeats, is bounded by the delivery (``room_for``).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from changefeed.feeds.feed import Change, Feed, Position
from changefeed.host.events import HostEvents
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.retries import Retrier
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Checkpoint
from changefeed.runtime.light_event import LightEvent

_REST = 9.0  # times as long as the write took: so writing takes a tenth of the time
_LONGEST_REST = 0.1


class Acknowledgements:
    """What one observer was given that is not yet known to be done. No I/O."""

    def __init__(self) -> None:
        self._open: deque[Change] = deque()
        self._done: set[int] = set()  # sequences of open changes behind a gap
        self._last = -1

    @property
    def unacknowledged(self) -> int:
        """How many delivered changes are at or behind the first that is not done."""
        return len(self._open)

    def deliver(self, changes: Sequence[Change]) -> None:
        """Count ``changes``, in order and later than all before, as in hand.

        What is delivered again after a failure is in hand once.
        """
        assert changes, "an empty batch is nothing to acknowledge"
        if changes[0].sequence <= self._last:
            changes = [x for x in changes if x.sequence > self._last]
        self._open.extend(changes)
        if changes:
            self._last = changes[-1].sequence

    def all_done(self) -> int:
        """Count everything that was delivered as done; return how much was not before."""
        changes = len(self._open)
        self._open.clear()
        self._done.clear()
        return changes

    def was_delivered(self, change: Change) -> bool:
        return change.sequence <= self._last

    def done_up_to(self, change: Change) -> Change | None:
        """Count ``change`` and all before it as done; return the watermark if it moved."""
        moved = None
        while self._open and self._open[0].sequence <= change.sequence:
            moved = self._pop()
        moved = self._follow() or moved
        assert not self._open or self._open[0].sequence > change.sequence, (
            f"{self._open[0].sequence} is open, and all up to {change.sequence} is done"
        )
        return moved

    def done(self, change: Change) -> Change | None:
        """Count ``change`` alone as done; return the watermark if it moved."""
        if not self._open or change.sequence < self._open[0].sequence:
            return None
        self._done.add(change.sequence)
        return self._follow()

    def _follow(self) -> Change | None:
        """Pass over what was acknowledged early, now that nothing before it is missing."""
        moved = None
        while self._open and self._open[0].sequence in self._done:
            moved = self._pop()
        return moved

    def _pop(self) -> Change:
        change = self._open.popleft()
        self._done.discard(change.sequence)
        return change


class Checkpointer:
    """Knows what of a range is done, and writes its positions, in order, the newest only.

    ``start`` begins a task of its worker, which writes, and raises ``LeaseLost`` or
    ``LeaseLost`` when nothing may be written.
    """

    def __init__(
        self,
        owned: OwnedLease,
        settings: ObserverSettings,
        *,
        start: Callable[[Coroutine[Any, Any, None]], object],
        feed: Feed,
        events: HostEvents,
        retrier: Retrier,
    ) -> None:
        self._owned = owned
        self._settings = settings
        self._start = start
        self._feed = feed
        self._events = events
        self._retrier = retrier
        self._clock = asyncio.get_running_loop().time
        self.in_hand = Acknowledgements()
        """What the observer was given that is not done."""
        self._wanted = self.reached = owned.stored
        """How far everything is done; it only moves forward."""
        self._said = 0
        self._written = 0
        self._changes = 0  # done since the last position that was said
        self._changes_unwritten = 0  # below that position, and not known to be stored
        self._due_since = self._clock()
        self._runs = False
        self._stopped = False
        self._urgent = LightEvent()
        self._idle = LightEvent()
        self._idle.set()
        self._progress = LightEvent()

    @property
    def unwritten(self) -> Checkpoint | None:
        """The newest checkpoint, if it is not stored yet."""
        return self._wanted if self._written < self._said else None

    @property
    def at_rest(self) -> bool:
        """Whether everything that was delivered is done, and stored."""
        return (
            self._written == self._said
            and self.reached == self._wanted
            and not self.in_hand.unacknowledged
        )

    # what is done

    def begin(self) -> None:
        """Have nothing in hand: another observer is given again what is not done."""
        self.in_hand = Acknowledgements()

    def returned(self, changes: Sequence[Change], end: Position | None) -> None:
        """Count what the observer returned from as done, unless that is for the user to say.

        ``end`` is the position behind it, where that is known.
        """
        if self._settings.checkpoint == "manual":
            return
        self._reach(end or self._feed.position_after(changes[-1]), self.in_hand.all_done())
        if self._is_due():
            self.advance()

    def acknowledge(self, change: Change, *, up_to: bool) -> bool:
        """Count a change as done, or all ``up_to`` it; return whether the watermark moved."""
        before = self.in_hand.unacknowledged
        count = self.in_hand.done_up_to if up_to else self.in_hand.done
        watermark = count(change)
        if watermark is None:
            return False
        left = self.in_hand.unacknowledged
        assert left < before, f"{watermark.sequence} is done, and {left} of {before} are left"
        self._reach(self._feed.position_after(watermark), before - left)
        self.advance()
        return True

    def pass_over(self, position: Position) -> None:
        """Count a page without changes; it ends the feed for now, so that there is time to
        write what policy had put off.
        """
        if not self.in_hand.unacknowledged:
            self._reach(position, 0)
        self.advance()

    def _reach(self, position: Position, changes: int) -> None:
        """Count everything below ``position`` as done: so many changes more than before."""
        assert changes >= 0, f"{changes} changes were done of {self._owned.range_id!r}"
        self.reached = Checkpoint(position)
        self._changes += changes

    def _is_due(self) -> bool:
        """Return whether policy has what was reached written now."""
        when, now = self._settings.checkpoint, self._clock()
        if isinstance(when, str):
            return when == "batch"
        due = now - self._due_since >= when
        if due:
            self._due_since = now
        return due

    # writing it

    async def room_for(self, changes: int, *, limit: int) -> None:
        """Wait until so many changes more make no more than ``limit`` that are not stored.

        What policy had put off is written for that; what is larger than ``limit`` waits
        until everything else is stored.
        """
        changes += self.in_hand.unacknowledged
        while 0 < self._changes + self._changes_unwritten > limit - changes:
            self.advance()
            if self._written == self._said:
                break  # the position has not moved: nothing to write makes room
            self._urgent.set()
            await self._progress.wait()

    def advance(self) -> int:
        """Have what was reached written soon; return its number for ``written``."""
        if self.reached != self._wanted:
            self._wanted = self.reached
            self._changes_unwritten += self._changes
            self._changes = 0
            self._said += 1
            assert self._written < self._said, "what was just said cannot be stored yet"
            if not self._runs and not self._stopped:
                self._runs = True
                self._start(self._write_all())
        return self._said

    async def written(self, number: int | None = None) -> None:
        """Wait until that position, or a later one, is stored. Default: the last one."""
        number = self._said if number is None else number
        assert number <= self._said, f"position {number} is waited for, of {self._said}"
        while self._written < number:
            self._urgent.set()
            await self._progress.wait()

    async def stop(self) -> Checkpoint | None:
        """Write nothing more; return what the last write of the lease should carry."""
        self._stopped = True
        self._urgent.set()
        await self._idle.wait()
        return self.unwritten

    async def _write_all(self) -> None:
        """Be the writer, until everything is written."""
        while self._written < self._said and not self._stopped:
            began = self._clock()
            await self._write()
            await self._rest(_REST * (self._clock() - began))
        self._runs = False

    async def _write(self) -> None:
        wanted, number, changes = self._wanted, self._said, self._changes_unwritten
        assert number > self._written, f"position {number} of {self._owned.range_id!r} again"
        self._idle.clear()
        await self._retrier.call("checkpoint", partial(self._owned.checkpoint, wanted))
        self._idle.set()
        self._events.checkpointed(self._owned.range_id, wanted.position)
        self._written = number
        self._changes_unwritten -= changes
        assert self._changes_unwritten >= 0, (
            f"{self._owned.range_id!r}: {changes} changes were stored, more than were done"
        )
        self._progress.set()
        self._progress.clear()

    async def _rest(self, seconds: float) -> None:
        """Let more come together, unless a call waits for it to be written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_REST)):
                await self._urgent.wait()
        self._urgent.clear()
