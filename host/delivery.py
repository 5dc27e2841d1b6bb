"""From the pages of one range to its observers, and from there to checkpoints.

The observers are opened, handed what the keys of the range allow
(``observers.key_scheduler``), and closed, under whatever lease the worker keeps. Once the
worker drains, what was read is finished, but for keys that wait: the checkpoint says what of
these is not done. If the settings say so, a range is paused at a change that would be put
aside. So is a range that the feed refuses to read on: the others can be read, and a host that
ended for it would leave the next host the same.

Limits: a range with a key that waits, or of which something is unacknowledged, is not split by
its owner.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import Change, Page, Position, RangeEnded
from changefeed.host.calls import CallWatch, Drain
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.events import STUCK_AFTER
from changefeed.host.load_meter import LoadMeter
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.reader import Reader
from changefeed.host.shared import WorkerContext
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.lease import KeyRequest, RangeEnd
from changefeed.observers.call import Blame, Call
from changefeed.observers.error_text import text_of
from changefeed.observers.errors import ObserverFailed
from changefeed.observers.observer import CloseReason
from changefeed.observers.range_observers import RangeObservers
from changefeed.observers.tracing import BatchTracing

_LOOK = 0.25  # seconds between two looks whether the lease can be written again
_MAX_REASON = 500


class Delivery:
    """Hands a range to its observers, until there is a reason to stop. It is what all of them
    are told of the range (``observers.call``).
    """

    def __init__(
        self,
        owned: OwnedLease,
        shared: WorkerContext,
        *,
        drain: Drain,
        meter: LoadMeter,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.range = owned.lease.range
        self.host: str = shared.host
        self.epoch = owned.lease.epoch
        self.reset_epoch = owned.lease.reset_epoch
        self._owned = owned
        self._shared = shared
        self._settings = shared.settings
        self._events = shared.events
        self._drain = drain
        self._progress = Progress(owned.stored, shared.feed.position_after)
        self.check = owned.check
        self.was_read = self._progress.was_read
        self.is_open = self._progress.is_open
        self._meter = meter
        self._clock = asyncio.get_running_loop().time
        self.watch = CallWatch(STUCK_AFTER)
        self._room = self._settings.observer.max_unacknowledged
        largest = min(self._room, self._settings.feed.page_size)
        self.observers = RangeObservers(shared.observers, self, largest)
        self._keys, self._moved = self.observers.keys, self.observers.moved
        self.checkpoints = Checkpointer(
            owned,
            self._settings.observer,
            self._progress,
            failures=self._keys.failures,
            start=start,
            events=self._events,
            retrier=shared.retrier,
        )
        self.returned, self.flush = self.checkpoints.returned, self.checkpoints.written
        self._pages = Reader(
            shared.feed,
            owned.lease.range,
            self._settings.feed,
            retrier=shared.retrier,
            idle=shared.idle,
            at_rest=self._is_done,
            meter=meter,
            came=self._moved.set,
        )
        self._unread: tuple[Sequence[Change], Position] = (), owned.stored.position
        """What there was no room for of the last page, and the position behind that."""
        self._ended: RangeEnded | None = None
        self._reason: CloseReason | None = None
        """Why there is nothing more to hand over, once that is so."""
        self._held_up_by: str | None = None
        """The key that waits the longest, if the range was full."""
        self.split_into: int | None = None
        """Into how many sub-ranges the range is to be split, as it is too much for one host."""
        self._cooldown = shared.rules.shown.cooldown
        self._split_not_before = self._clock() + self._cooldown  # it has much to catch up with
        self.end: RangeEnd | None = None
        """What the range goes on in, once it has been read to its end."""
        self.pause_reason: str | None = None
        """Why no host is to read the range any more; ``None`` while there is no reason."""

    @property
    def handing_over(self) -> bool:
        return self._drain.reason is not None

    @property
    def in_hand(self) -> bool:
        """Whether an observer was given changes that are not done."""
        return self._progress.unacknowledged > self._keys.held

    @property
    def oldest(self) -> Change | None:
        """The first change that is not done, if it has been read and looked at."""
        return self._progress.oldest[0] or next(iter(self._unread[0]), None)

    def stop(self) -> None:
        """Hand over nothing more than what is ready; what was read ahead is dropped."""
        self._pages.stop()
        self._moved.set()

    def asked(self, request: KeyRequest) -> KeyRequest:
        """Do what a person asks, next; return it with the answer."""
        if request.aside and self._shared.observers.letters is None:
            return replace(request, answer="no dead letters")
        waits = self._keys.ask(request.key, aside=request.aside)
        self._moved.set()
        return replace(request, answer="taken" if waits else "not waiting")

    async def run(self, group: asyncio.TaskGroup) -> CloseReason:
        """Hand over; return why no more. ``group`` gets the task that reads ahead."""
        self._group = group
        self._reading = group.create_task(self._pages.fill(self._owned.stored.position))
        try:
            async with self.observers.opened(self._why_closed):
                self._reason = await self._deliver()
                return self._reason
        except RangeRefused as refused:
            return self._pause(text_of(refused))
        except ObserverFailed as failed:
            return self._drain.reason or self._pause(str(failed))
        finally:
            self._reading.cancel()

    def _pause(self, reason: str) -> CloseReason:
        self.pause_reason = reason[:_MAX_REASON]
        self._events.range_paused(self._owned.range_id, self.pause_reason)
        return CloseReason.PAUSED

    def _why_closed(self) -> CloseReason:
        cut_off = CloseReason.LEASE_LOST if self._owned.lost else self._drain.reason
        return self._reason or cut_off or CloseReason.FAILED

    def _is_done(self) -> bool:
        """Whether all that was read is done. Another empty page is of no use then: the last one
        has it written, and ends what trouble there was.
        """
        return not self._progress.unacknowledged and not self._unread[0]

    async def _deliver(self) -> CloseReason:
        """Read on and hand over, until there is a reason to stop."""
        observers = self.observers
        while True:
            self._moved.clear()
            if self._owned.failing:
                await self._until_written_again()
            if self._drain.reason is not None:
                self._keys.stop()
            elif self.split_into is not None and await self._splits():
                return CloseReason.RANGE_ENDED
            else:
                await self._read_on()
            self._keys.one_by_one = self._owned.care > 0
            if await observers.give():
                continue
            if not observers.are_busy and (reason := self._reason_to_end()) is not None:
                return reason
            await observers.wait(self._drain.deadline)

    def _reason_to_end(self) -> CloseReason | None:
        if self._ended is not None and self._is_done():
            self.end = RangeEnd(children=self._ended.children)
            if self._shared.feed.children_inherit_positions:
                self.end = self.end.with_done(self.checkpoints.reached)
            self._events.ended(self._ended.range_id, self.end)
            return CloseReason.RANGE_ENDED
        if self._drain.reason is not None and (not self.in_hand or self._drain.overdue):
            return self._drain.reason
        return None

    async def _splits(self) -> bool:
        """End the range here, if all that was read is done, and its feed can split it.

        Each listing asks for a split, or takes that back; nothing is stopped for it. A range is
        not split before its owner has read it for a cooldown, nor for as long after a refusal.
        """
        if self._clock() < self._split_not_before or not self._is_done():
            return False
        self.checkpoints.advance()
        await self.checkpoints.written()
        into = self.split_into
        if into is None or self._drain.reason is not None:  # taken back meanwhile
            return False
        lease, at = self._owned.lease, self._owned.stored
        assert at == self.checkpoints.reached, (
            f"parts of range {lease.range_id!r} would begin behind what was done"
        )
        try:
            self.end = RangeEnd.of_split(self._shared.feed, lease.range, into, at)
        except FeedRefused as error:
            self._split_not_before = self._clock() + self._cooldown
            self._events.retrying("split range", error, self._cooldown)
            return False
        self._events.ended(lease.range_id, self.end)
        return True

    async def _read_on(self) -> None:
        """Take in what was read ahead, while nothing else is ready and there is room for it."""
        while self._ended is None and not self._keys.has_ready and self._drain.reason is None:
            changes, _ = self._unread
            if changes:
                # As much as there would be without what waits: crumbs would cost more calls.
                most = 1 if self._owned.care else self._room - self._keys.held
                wanted = min(len(changes), max(1, most))
                if not await self.checkpoints.room_for(wanted):
                    self._tell_full()
                    return
                if self._drain.reason is None:
                    self._take_in(wanted)
            elif (page := self._pages.next_nowait()) is None:
                return
            elif isinstance(page, RangeEnded):
                self._ended = page
            elif page.changes:
                self._take_page(page)
            else:
                await self._reached_end(page.position)

    def _tell_full(self) -> None:
        """Say for which keys the range waits, once for each that is the oldest of them."""
        oldest = next(iter(self._keys.waiting), None)
        if oldest not in {None, self._held_up_by}:
            self._held_up_by = oldest
            self._events.range_full(self._owned.range_id, self._keys.waiting, self._room)

    def _take_in(self, count: int) -> None:
        changes, end = self._unread
        taken = changes[:count] if count < len(changes) else changes
        self._unread = changes[count:], end
        left = self._progress.read(taken, end if count == len(changes) else None)
        assert self._progress.unacknowledged <= self._room, f"{count} are too many"
        self._keys.add(left, self._progress.failures(left))

    def _take_page(self, page: Page) -> None:
        began = self._clock()
        changes = [*page.changes]  # a feed may leave it to us to make them
        size = self._settings.feed.page_size
        self._meter.has_read(self._clock() - began, changes=len(changes), limit=size)
        self._unread = changes, page.position

    async def _reached_end(self, position: Position) -> None:
        """There is nothing to read by now."""
        self._progress.read((), position)
        self.checkpoints.advance()  # also what policy had put off: there is time
        if self._is_done():
            known = self._events.activity.of(self._owned.range_id)
            known.health = known.health.caught_up()
            if self._owned.deaths != NO_DEATHS:
                await self._shared.care.caught_up(self._owned)

    # what its observers are told, and say

    def begin(self, at: str) -> None:
        """Go on where an observer says that the range is."""
        found = Checkpoint.of_text(at)
        if found == self.checkpoints.reached:
            return
        self._progress.begin(found)
        self.checkpoints.advance()  # the lease was of another place
        self._keys.restart(())
        self._reading.cancel()
        self._pages.drop()
        self._unread, self._ended = ((), found.position), None
        self._reading = self._group.create_task(self._pages.fill(found.position))

    def restart(self) -> None:
        """Have all that is not done handed over again: no observer has any of it."""
        self.watch.restart()
        self._keys.restart(self._progress.open)

    def checkpoint_with(self, changes: Sequence[Change]) -> str:
        return self._progress.once_done(changes, self._keys.failures()).text

    def acknowledge(self, changes: Sequence[Change]) -> None:
        oldest = self._progress.lowest
        if self._progress.done(changes):
            self.checkpoints.advance()
            if self._progress.lowest != oldest or self._keys.held:
                self.watch.acknowledged(left=self.in_hand)
            self._moved.set()

    async def in_call(self, name: str, changes: Sequence[Change], call: Call) -> None:
        """Bound a call of an observer by the deadline of the drain, and count it."""
        turn: AbstractAsyncContextManager[Blame | None] = nullcontext()
        if changes and self._owned.care:
            how = self._owned, self._drain, self.checkpoints
            turn = self._shared.care.alone(changes[0], *how)
        async with turn as blame:
            made = call(blame)
            if changes and self._shared.tracing is not None:
                made = self._traced(self._shared.tracing, changes, made)
            began = self._clock()
            self.watch.begin()
            self._meter.count(1)
            try:
                await self._drain.bounded(made)
            except BaseException as error:
                self.watch.end(error)
                self._meter.count(-1)
                if isinstance(error, TimeoutError) and self._drain.overdue:
                    reason = f"{name} did not end in time for the handoff"
                    raise ObserverFailed(self._owned.range_id, None, 1, reason) from error
                raise
            self.watch.end()
            self._meter.count(-1, done=len(changes))
            if name == "process":
                if self._settings.observer.checkpoint == "manual" and self.in_hand:
                    self.watch.unacknowledged()
                self._events.batch(self._owned.range_id, len(changes), self._clock() - began)

    async def _traced(
        self, tracing: BatchTracing, changes: Sequence[Change], call: Awaitable[None]
    ) -> None:
        with tracing.batch(self, changes):
            await call

    async def _until_written_again(self) -> None:
        """Wait while the lease cannot be written: its owner ends, or the store is back."""
        while self._owned.failing and self._drain.reason is None:
            self._owned.check()
            await asyncio.sleep(_LOOK)
