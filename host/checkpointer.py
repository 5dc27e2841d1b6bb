"""When what is done of one range is written (``leases.checkpoint``), and the one writer of it.

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

from changefeed.feeds.feed import Change
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.runtime.light_event import LightEvent

_REST = 9.0  # times as long as the write took: so writing takes a tenth of the time
_MAX_REST = 0.1


class Checkpointer:
    """Writes how far ``progress`` is, in order, the newest only. ``failures`` returns what
    counts against the first changes of keys by then.

    ``start`` begins a task of its worker, which writes, and raises ``LeaseLost`` when
    nothing may be written.
    """

    def __init__(
        self,
        owned: OwnedLease,
        settings: ObserverSettings,
        progress: Progress,
        *,
        failures: Callable[[], Mapping[int, int]],
        start: Callable[[Coroutine[Any, Any, None]], object],
        events: HostEvents,
        retrier: Retrier,
    ) -> None:
        self._owned = owned
        self._settings = settings
        self._start = start
        self._events = events
        self._retrier = retrier
        self._clock = asyncio.get_running_loop().time
        self._progress = progress
        self._failures = failures
        self._said = progress.moves  # of these, what is to be written
        self._written = progress.moves  # and of which the lease was written since
        self._unsaid = 0  # of these, what that write could not say
        self._due_since = self._clock()
        self._stopped = False
        self._urgent = LightEvent()
        self._idle = LightEvent()
        self._idle.set()
        self._moved = LightEvent()

    @property
    def reached(self) -> Checkpoint:
        """What is done by now, and what counts against the rest."""
        return self._progress.checkpoint(self._failures())

    def returned(self, changes: Sequence[Change]) -> None:
        """Count what the observer returned from as done, and write it as policy says."""
        self._progress.done(changes)
        when = self._settings.checkpoint
        if when == "batch":
            self.advance()
        elif not isinstance(when, str) and self._clock() - self._due_since >= when:
            self._due_since = self._clock()
            self.advance()

    async def room_for(self, changes: int) -> bool:
        """Wait until there is room for so many changes more: with them, no more than
        ``max_unacknowledged`` are not stored. Return ``False`` where no write makes room: only
        observers can, that are done with more.

        What policy had put off is written for that; what is larger than the room waits until
        everything else is stored.
        """
        progress = self._progress
        room = self._settings.max_unacknowledged - progress.unacknowledged - changes
        if progress.uncovered > room:
            return False
        while 0 < progress.moves - self._written + self._unsaid > room:
            self.advance()
            if self._written == self._said:
                break  # nothing to write makes room
            self._urgent.set()
            await self._moved.wait()
        return True

    def advance(self) -> None:
        """Have what was reached written soon."""
        if self._said < self._progress.moves:
            self._said = self._progress.moves
            if self._idle.is_set() and not self._stopped:
                self._idle.clear()
                self._start(self._write())

    async def written(self) -> None:
        """Wait until all is stored that is to be written by now."""
        wanted = self._said
        while self._written < wanted:
            self._urgent.set()
            await self._moved.wait()

    async def stop(self) -> None:
        """Write nothing more: the last write of the lease carries what is done."""
        self._stopped = True
        self._urgent.set()
        await self._idle.wait()

    async def _write(self) -> None:
        """Be the writer, until everything is written."""
        while self._written < self._said and not self._stopped:
            began = self._clock()
            wanted, said, unsaid = self.reached, self._said, self._progress.uncovered
            await self._retrier.call("checkpoint", partial(self._owned.checkpoint, wanted))
            self._events.checkpointed(self._owned.range_id, wanted.position)
            self._written, self._unsaid = said, unsaid
            self._moved.set()
            self._moved.clear()
            rest = min(_REST * (self._clock() - began), _MAX_REST)
            with suppress(TimeoutError):  # more comes together, unless a call waits for it
                async with asyncio.timeout(rest):
                    await self._urgent.wait()
            self._urgent.clear()
        self._idle.set()
