"""What of one range is done, when it is written, and the one writer of it.

Changes are acknowledged one by one and in any order, or all up to one of them, or by the return
of the observer. What is done behind a change that is not done is written as well
(``leases.checkpoint``).

The newest position wins: while a write is under way, later positions replace each other,
and only the last is written. After a write the writer rests for a few times as long as the
write took, unless a call waits for it: so checkpoints cost a fixed part of the time at
the most, however fast batches come and however slow the container is. Once everything is
written, no task is left. How much may be delivered and not yet stored, which is what a crash
repeats, is bounded by the delivery (``room_for``).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from changefeed.feeds.feed import Change, Feed, Position
from changefeed.host.events import HostEvents
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.progress import Progress
from changefeed.host.retries import Retrier
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Checkpoint
from changefeed.runtime.light_event import LightEvent

_REST = 9.0  # times as long as the write took: so writing takes a tenth of the time
_MAX_REST = 0.1


class Checkpointer:
    """Knows what of a range is done, and writes its positions, in order, the newest only.

    ``start`` begins a task of its worker, which writes, and raises ``LeaseLost`` when
    nothing may be written.
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
        self._events = events
        self._retrier = retrier
        self._clock = asyncio.get_running_loop().time
        self.progress = Progress(owned.stored, feed.position_after)
        self.failures: Callable[[], Mapping[int, int]] = dict
        """Returns what counts against the first changes of keys."""
        self._done = 0  # how many changes, pages without any, and beginnings
        self._said = 0  # of these, what is to be written
        self._written = 0  # and of which the lease was written since
        self._unsaid = 0  # of these, what that write could not say
        self._due_since = self._clock()
        self._runs = False
        self._stopped = False
        self._urgent = LightEvent()
        self._idle = LightEvent()
        self._idle.set()
        self._progress = LightEvent()

    @property
    def unwritten(self) -> Checkpoint | None:
        """What is done by now, and what counts against the rest, if it is not stored yet."""
        reached = self.reached
        return None if reached == self._owned.stored else reached

    @property
    def reached(self) -> Checkpoint:
        """What is done by now."""
        return self.progress.checkpoint(self.failures())

    @property
    def at_rest(self) -> bool:
        """Whether everything that was delivered is done, and stored."""
        return self._written == self._done and not self.progress.unacknowledged

    def begin(self, checkpoint: Checkpoint) -> None:
        """Go on there: the lease gets it soon, as its own was of another place."""
        self.progress.begin(checkpoint)
        self._done += 1
        self.advance()

    # what is done

    def returned(self, changes: Sequence[Change]) -> None:
        """Count what the observer returned from as done."""
        self._done += self.progress.done(changes)
        when = self._settings.checkpoint
        if when == "batch":
            self.advance()
        elif not isinstance(when, str) and self._clock() - self._due_since >= when:
            self._due_since = self._clock()
            self.advance()

    def acknowledge(self, changes: Sequence[Change]) -> bool:
        """Count changes as done, in whatever order; return whether one of them was not."""
        count = self.progress.done(changes)
        self._done += count
        if count:
            self.advance()
        return count > 0

    def read(self, changes: Sequence[Change], end: Position | None) -> Sequence[Change]:
        """Take in what was read; return what is not done of it. ``end`` is the position behind
        it, where that is known. A page without changes ends the feed for now, so that there is
        time to write what policy had put off.
        """
        before = self.progress.end
        left = self.progress.read(changes, end)
        self._done += not left and self.progress.end != before
        if not changes:
            self.advance()
        return left

    # writing it

    async def room_for(self, changes: int, *, limit: int) -> None:
        """Wait until so many changes more make no more than ``limit`` that are not stored.

        What policy had put off is written for that; what is larger than ``limit`` waits
        until everything else is stored.
        """
        changes += self.progress.unacknowledged
        while 0 < self._done - self._written + self._unsaid > limit - changes:
            self.advance()
            if self._written == self._said:
                break  # nothing to write makes room
            self._urgent.set()
            await self._progress.wait()

    def advance(self) -> None:
        """Have what was reached written soon."""
        if self._said < self._done:
            self._said = self._done
            if not self._runs and not self._stopped:
                self._runs = True
                self._start(self._write_all())

    async def written(self) -> None:
        """Wait until all is stored that is to be written by now."""
        wanted = self._said
        while self._written < wanted:
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
            rest = min(_REST * (self._clock() - began), _MAX_REST)
            with suppress(TimeoutError):  # more comes together, unless a call waits for it
                async with asyncio.timeout(rest):
                    await self._urgent.wait()
            self._urgent.clear()
        self._runs = False

    async def _write(self) -> None:
        wanted, said, unsaid = self.reached, self._said, self.progress.uncovered
        assert said > self._written, f"{wanted} of {self._owned.range_id!r} again"
        self._idle.clear()
        if wanted != self._owned.stored:
            await self._retrier.call("checkpoint", partial(self._owned.checkpoint, wanted))
        self._idle.set()
        self._events.checkpointed(self._owned.range_id, wanted.position)
        self._written, self._unsaid = said, unsaid
        self._progress.set()
        self._progress.clear()
