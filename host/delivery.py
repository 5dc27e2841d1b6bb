"""From the pages of one range to one observer, and from there to checkpoints.

The observer is opened, handed page after page, and closed, under whatever lease the worker
keeps. Nothing is handed to it once the worker drains. An observer that has failed for good
is closed, and after a rest another one begins at the last checkpoint; or, if the settings
say so, the range is paused. So is a range that the feed refuses to read on: the others can
be read, and a host that ended for it would leave the next host the same.

Limits: a range whose observer leaves something unacknowledged at the end of each page is not
split by its owner.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import Change, Page, Position, RangeEnded
from changefeed.host.call_watch import CallWatch
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.context import Drain, WorkerContext
from changefeed.host.events import STUCK_AFTER
from changefeed.host.load_meter import LoadMeter
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.reader import Reader
from changefeed.host.shared import Shared
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.lease import End
from changefeed.observers.call import Blame
from changefeed.observers.error_text import text_of
from changefeed.observers.errors import (
    LeaseFenced,
    ObserverExhausted,
    ObserverFailed,
    ObserverStuck,
    ran_out_of_memory,
)
from changefeed.observers.observer import CloseReason, Observer

_CLOSE_TIMEOUT = 10.0
_LOOK = 0.25  # seconds between two looks whether the lease can be written again
_LONGEST_REASON = 500


class Delivery:
    """Feeds one observer after the other, until there is a reason to stop."""

    def __init__(
        self,
        owned: OwnedLease,
        shared: Shared,
        *,
        drain: Drain,
        checkpoints: Checkpointer,
        meter: LoadMeter,
    ) -> None:
        self._owned = owned
        self._shared = shared
        self._settings = shared.settings
        self._events = shared.events
        self._drain = drain
        self._checkpoints = checkpoints
        self._meter = meter
        self._clock = asyncio.get_running_loop().time
        self._watch = CallWatch(
            STUCK_AFTER,
            overdue=partial(self._events.no_progress, owned.range_id, self._settings.observer),
            returned=partial(self._events.health.returned, owned.range_id),
        )
        self._context = self._make_context()
        self._pages: Reader | None = None
        self.split_into: int | None = None
        """Into how many sub-ranges the range is to be split, as it is too much for one host."""
        self._cooldown = self._settings.leases.timing.cooldown
        self._split_not_before = self._clock() + self._cooldown  # it has much to catch up with
        self.end: End | None = None
        """What the range goes on in, once it has been read to its end."""
        self.stuck = False
        """Whether a call may still run that could not be ended: the lease must expire."""
        self.pause_reason: str | None = None
        """Why no host is to read the range any more; ``None`` while there is no reason."""

    @property
    def in_hand(self) -> bool:
        """Whether the observer was given changes that are not done."""
        return self._checkpoints.in_hand.unacknowledged > 0

    def stop(self) -> None:
        """Deliver nothing more; what was read ahead is dropped."""
        self._context.announce_handover()
        if self._pages is not None:
            self._pages.stop()

    async def run(self, group: asyncio.TaskGroup) -> CloseReason:
        """Feed observers; return why no more. ``group`` gets the task that reads ahead."""
        while True:
            observer = self._shared.make_observer(self._owned.lease.range, self._context)
            try:
                return await self._open_and_deliver(observer, group)
            except RangeRefused as refused:
                self._checkpoints.advance()
                return self._pause(text_of(refused))
            except ObserverFailed as failed:
                self._checkpoints.advance()
                await self._checkpoints.written()  # reading begins there again
                self._checkpoints.begin()
                self._context = self._make_context()
                if self._drain.reason is None:
                    reason = await self._after_failure(failed)
                    if reason is not None:
                        return reason
            if self._drain.reason is not None:
                return self._drain.reason

    def _make_context(self) -> WorkerContext:
        return WorkerContext(
            self._owned,
            self._shared.host,
            checkpoints=self._checkpoints,
            drain=self._drain,
            watch=self._watch,
        )

    async def _after_failure(self, failed: ObserverFailed) -> CloseReason | None:
        """Rest, so that another observer begins; or return why none is to.

        Raise ``ObserverExhausted`` where only a fresh process can help.
        """
        if ran_out_of_memory(failed):
            raise ObserverExhausted(self._owned.range_id, failed.reason) from failed
        if self._settings.observer.on_failure == "stop-range":
            return self._pause(str(failed))
        rest = self._settings.observer.retry.max_delay
        self._events.observer_gave_up(self._owned.range_id, failed, rest)
        await self._drain.sleep(rest)
        return None

    def _pause(self, reason: str) -> CloseReason:
        self.pause_reason = reason[:_LONGEST_REASON]
        self._events.range_paused(self._owned.range_id, self.pause_reason)
        return CloseReason.PAUSED

    async def _open_and_deliver(
        self, observer: Observer, group: asyncio.TaskGroup
    ) -> CloseReason:
        reason: CloseReason | None = None
        assert self._pages is None, f"{self._owned.range_id!r} has a reader already"
        pages = self._pages = Reader(
            self._shared.feed,
            self._owned.lease.range,
            self._settings.feed,
            retrier=self._shared.retrier,
            idle=self._shared.idle,
            at_rest=self._at_rest,
            meter=self._meter,
        )
        reading = group.create_task(pages.fill(self._owned.stored.position))
        try:
            if self._drain.reason is not None:
                pages.stop()
            async with self._in_hand("open"):
                await observer.open(self._context)
            reason = await self._deliver(observer, pages)
        except ObserverFailed:
            reason = self._drain.reason or CloseReason.FAILED
            raise
        except ObserverStuck as error:
            self.stuck = True
            self._events.observer_stuck(self._owned.range_id, error)
            raise
        finally:
            reading.cancel()
            self._pages = None
            try:
                if not self.stuck:
                    await self._close(observer, reason or self._reason_of_cancellation())
            finally:
                self._context.observer_closed()
                self._watch.end()
        return reason

    def _at_rest(self) -> bool:
        """Whether nothing is to be done but to wait for changes: empty pages are of no use."""
        return (
            self._checkpoints.at_rest
            and self._owned.deaths == NO_DEATHS
            and not self._events.health.of(self._owned.range_id).in_trouble
        )

    async def _deliver(self, observer: Observer, pages: Reader) -> CloseReason:
        """Hand page after page to the observer, until there is a reason to stop."""
        while (page := await pages.next()) is not None:
            if isinstance(page, RangeEnded):
                await self._until_acknowledged()
                if self.in_hand:
                    break  # the worker drains: the next owner finds the end again
                self._checkpoints.advance()
                self.end = End(children=page.children)
                self._events.ended(page.range_id, self.end)
                return CloseReason.RANGE_ENDED
            if page.changes:
                await self._hand_over(observer, page)
            else:
                if not self.in_hand:
                    self._events.health.caught_up(self._owned.range_id)
                self._checkpoints.pass_over(page.position)
                if not self.in_hand and self._owned.deaths != NO_DEATHS:
                    await self._shared.care.caught_up(self._owned)
            if self.split_into is not None and await self._splits(self.split_into):
                return CloseReason.RANGE_ENDED
        assert self._drain.reason is not None, "only a drain stops the reading"
        await self._until_acknowledged()
        self._checkpoints.advance()
        return self._drain.reason

    async def _splits(self, into: int) -> bool:
        """End the range here, if all that was delivered is done, and its feed can split it.

        Each listing asks for a split, or takes that back; nothing is stopped for it. A range is
        not split before its owner has read it for a cooldown, nor for as long after a refusal.
        """
        too_early = self._clock() < self._split_not_before
        if too_early or self.in_hand or self._drain.reason is not None:
            return False
        self._checkpoints.advance()
        await self._checkpoints.written()
        if self.split_into is None:  # taken back meanwhile
            return False
        lease, at = self._owned.lease, self._owned.stored.position
        assert self._checkpoints.at_rest, (
            f"parts of range {lease.range_id!r} would begin behind what was done"
        )
        try:
            self.end = End.of_split(self._shared.feed, lease.range, into, at)
        except FeedRefused as error:
            self._split_not_before = self._clock() + self._cooldown
            self._events.retrying("split range", error, self._cooldown)
            return False
        self._events.ended(lease.range_id, self.end)
        return True

    async def _hand_over(self, observer: Observer, page: Page) -> None:
        """Hand over a page, in pieces that there is room for, or with care."""
        rest = page.changes
        while rest and self._drain.reason is None:
            careful = self._owned.deaths.care > 0
            size = 1 if careful else self._settings.observer.max_unacknowledged
            changes, rest = rest[:size], rest[size:]
            await self._until_room_for(len(changes))
            async with self._alone(changes[0]) if careful else nullcontext() as blamed:
                if self._drain.reason is not None:
                    return
                self._context.blamed = blamed
                await self._hand_over_piece(observer, changes, None if rest else page.position)

    def _alone(self, change: Change) -> AbstractAsyncContextManager[Blame | None]:
        care = self._shared.care
        return care.alone(change, self._owned, self._drain, self._checkpoints)

    async def _hand_over_piece(
        self, observer: Observer, changes: Sequence[Change], end: Position | None
    ) -> None:
        """Hand over some changes at once; ``end`` is the position behind, where it is known."""
        tracing, context = self._shared.tracing, self._context
        self._owned.check()
        began = self._clock()
        limit = self._settings.observer.max_unacknowledged
        open_ = self._checkpoints.in_hand.unacknowledged
        assert open_ == 0 or open_ + len(changes) <= limit, (
            f"{self._owned.range_id!r}: {open_} + {len(changes)} changes in hand, of {limit}"
        )
        self._checkpoints.in_hand.deliver(changes)
        async with self._in_hand("process", len(changes)):
            with nullcontext() if tracing is None else tracing.batch(context, changes):
                await observer.process(context, changes)
        self._checkpoints.returned(changes, end)
        if self.in_hand:
            self._watch.unacknowledged()
        self._events.batch(self._owned.range_id, len(changes), self._clock() - began)

    @asynccontextmanager
    async def _in_hand(self, call: str, changes: int = 0) -> AsyncIterator[None]:
        """Bound a call of the observer by the deadline of the drain."""
        try:
            with self._watch.watching(), self._meter.observing(changes):
                async with self._drain.bounded():
                    yield
        except LeaseFenced:
            self._owned.lose("it could not be renewed in time")
        except TimeoutError as error:
            if not self._drain.overdue:
                raise
            reason = f"{call} did not end in time for the handoff"
            raise ObserverFailed(self._owned.range_id, None, 1, reason) from error

    async def _until_room_for(self, changes: int) -> None:
        """Wait until ``changes`` more make no more than a crash may repeat, and while the
        lease cannot be written: its owner ends, or the store is back.
        """
        limit = self._settings.observer.max_unacknowledged
        while (
            self.in_hand
            and self._checkpoints.in_hand.unacknowledged + changes > limit
            and self._drain.reason is None
        ):
            await self._context.acknowledged()
        if self._drain.reason is None:
            await self._checkpoints.room_for(changes, limit=limit)
        while self._owned.failing and self._drain.reason is None:
            self._owned.check()
            await self._drain.sleep(_LOOK)

    async def _until_acknowledged(self) -> None:
        """Wait until all that was delivered is done, or the deadline of the drain."""
        with suppress(TimeoutError):
            async with self._drain.bounded():
                while self.in_hand:
                    await self._context.acknowledged()

    async def _close(self, observer: Observer, reason: CloseReason) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await observer.close(self._context, reason)
        except Exception as error:  # noqa: BLE001 - the border to the user's code
            self._events.close_failed(self._owned.range_id, error)

    def _reason_of_cancellation(self) -> CloseReason:
        if self._owned.lost:
            return CloseReason.LEASE_LOST
        return self._drain.reason or CloseReason.FAILED
