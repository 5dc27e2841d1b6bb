"""One worker for each lease: it reads the range, calls the observer, keeps the lease.

The observer is the body, and the renewer, the writer of checkpoints and the rest are its
companions: whatever ends the body, the lease is still being renewed while the body winds
down; and when the lease is lost, the body is cancelled with them.

How it ends:

* asked to part (another host asks for the lease, it is paused, the host stops), or at the
  end of the range: nothing more is delivered, what is in hand is finished and
  checkpointed, the observer closed, and the lease handed over, released or marked as
  ended, in one write with the last checkpoint;
* the lease is lost: the observer is cancelled and closed, nothing more is written;
* cancelled (the time to stop is over): the observer is cancelled and closed; what it had
  in hand does not count as done, but the lease is released.

* the observer has failed for good, and the settings say so: the lease is released, and
  paused in the same write.

The lease is never given up before the observer's last call has returned. A call that
cannot be ended, a plain function stuck in its thread, therefore keeps the lease until it
expires or is robbed. With a time limit (``ObserverStuck``) the worker does not wait for
that: it ends, calls the observer no more, and leaves the lease to expire.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Never

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, Page, RangeEnded
from changefeed.host.balancing.range_sync import create_successors
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import Settings
from changefeed.host.workers.acknowledgements import Acknowledgements
from changefeed.host.workers.checkpointer import Checkpointer, CheckpointPolicy
from changefeed.host.workers.context import WorkerContext
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.host.workers.prefetch import Prefetcher
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerError, LeaseGone, LeaseLost
from changefeed.leases.lease import HostName, Lease
from changefeed.observers.errors import LeaseFenced, ObserverFailed, ObserverStuck
from changefeed.observers.middleware.fence import ObserverMaker
from changefeed.observers.observer import CloseReason, Observer

_CLOSE_TIMEOUT = 10.0
_LAST_RELEASE_TIMEOUT = 2.0
_LONGEST_REASON = 500


class Worker:
    """Reads one range for one observer, for as long as the lease is ours.

    ``lives`` tells whether a host is known to be alive: nothing is handed over to others.
    """

    def __init__(
        self,
        owned: OwnedLease,
        *,
        host: HostName,
        feed: Feed,
        container: LeaseContainer,
        make_observer: ObserverMaker,
        lives: Callable[[HostName], bool],
        settings: Settings,
        events: HostEvents,
        random: Random,
    ) -> None:
        self._owned = owned
        self._feed = feed
        self._container = container
        self._make_observer = make_observer
        self._lives = lives
        self._settings = settings
        self._events = events
        self._random = random
        self._retrier = Retrier(events, random)
        self._clock = asyncio.get_running_loop().time
        self._checkpoints = Checkpointer(owned, events, self._retrier)
        self._acknowledgements = Acknowledgements()
        self._context = WorkerContext(
            owned.lease,
            host,
            feed=feed,
            acknowledgements=self._acknowledgements,
            checkpoints=self._checkpoints,
        )
        self._policy = CheckpointPolicy(settings.observer, now=self._clock())
        self._draining: CloseReason | None = None
        self._drain_now = asyncio.Event()
        self.stuck = False
        """Whether a call may still run that could not be ended: the lease must expire."""
        self._pause: str | None = None
        self._pages: Prefetcher | None = None
        self._in_hand: asyncio.Timeout | None = None
        self._drain_deadline: float | None = None

    @property
    def lease(self) -> Lease:
        return self._owned.lease

    @property
    def may_act(self) -> bool:
        """Whether nobody else can own the lease yet."""
        return self._owned.may_act

    def part(self, reason: CloseReason) -> None:
        """Wind down: finish what is in hand, checkpoint, and give up the lease."""
        if self._draining is None:
            self._draining = reason
            self._events.parting(self.lease, reason)
        if reason is not CloseReason.STOPPING and self._drain_deadline is None:
            self._drain_deadline = self._clock() + self._settings.leases.max_handoff_time
            if self._in_hand is not None:
                self._in_hand.reschedule(self._drain_deadline)
        self._context.handing_over = True
        self._context.moved.set()
        self._drain_now.set()
        if self._pages is not None:
            self._pages.stop()

    def mark_stuck(self) -> None:
        """Stop waiting for a call that cannot be ended: the lease must then expire."""
        self.stuck = True

    async def run(self) -> CloseReason:
        """Work until the lease is given up or lost; return why.

        Raise ``FeedError`` or ``ContainerError`` (in a group) where asking again cannot
        help, and ``ObserverStuck``. When cancelled, release the lease if that is quickly done.
        """
        reason = CloseReason.FAILED
        try:
            async with asyncio.TaskGroup() as group:
                companions = [
                    group.create_task(companion)
                    for companion in (
                        self._keep_renewed(),
                        self._checkpoints.run(),
                        self._heed_requests(),
                        self._measure_lag(),
                    )
                ]
                reason = await self._observe(group)
                await self._give_up(reason)
                for companion in companions:
                    companion.cancel()
        except* (LeaseLost, LeaseGone):
            reason = CloseReason.LEASE_LOST
        finally:
            if reason is CloseReason.FAILED:
                reason = self._draining or reason
                await self._release_at_last()
            if self.stuck and reason is not CloseReason.LEASE_LOST:
                self._events.stuck(self.lease)
            else:
                self._events.parted(self.lease, reason)
        return reason

    # the observer

    async def _observe(self, group: asyncio.TaskGroup) -> CloseReason:
        """Open the observer and feed it, again after a rest whenever it has failed."""
        while True:
            observer = self._make_observer(self._owned.lease.range, self)
            try:
                return await self._open_and_deliver(observer, group)
            except ObserverFailed as error:
                self._checkpoints.advance()
                await self._checkpoints.written()  # reading begins there again
                self._acknowledgements.forget()
                if self._draining is None:
                    if self._settings.observer.on_failure == "stop-range":
                        return self._pause_because(error)
                    rest = self._settings.observer.reopen_delay
                    self._events.observer_gave_up(self._owned.range_id, error, rest)
                    await self._rest(rest)
            if self._draining is not None:
                return self._draining

    def _pause_because(self, error: ObserverFailed) -> CloseReason:
        self._pause = str(error)[:_LONGEST_REASON]
        self._events.range_paused(self._owned.range_id, self._pause)
        return CloseReason.PAUSED

    async def _open_and_deliver(
        self, observer: Observer, group: asyncio.TaskGroup
    ) -> CloseReason:
        reason: CloseReason | None = None
        stuck = False
        pages = self._pages = Prefetcher(
            self._feed,
            self._owned.range_id,
            self._settings.feed,
            retrier=self._retrier,
            random=self._random,
        )
        reading = group.create_task(pages.fill(self._owned.continuation))
        try:
            if self._draining is not None:
                pages.stop()
            async with self._while_in_hand("open"):
                await observer.open(self._context)
            reason = await self._deliver(observer, pages)
        except ObserverFailed:
            reason = self._draining or CloseReason.FAILED
            raise
        except ObserverStuck as error:
            stuck = True
            self.mark_stuck()
            self._events.observer_stuck(self._owned.range_id, error)
            raise
        finally:
            reading.cancel()
            self._pages = None
            if not stuck:
                await self._close(observer, reason or self._reason_of_cancellation())
        return reason

    async def _deliver(self, observer: Observer, pages: Prefetcher) -> CloseReason:
        """Hand page after page to the observer, until there is a reason to part."""
        while (page := await pages.next()) is not None:
            if isinstance(page, RangeEnded):
                await self._until_acknowledged()
                if self._acknowledgements.unacknowledged:
                    break  # asked to part meanwhile: whoever is next finds the end again
                await self._prepare_successors(page)
                return CloseReason.RANGE_ENDED
            if not page.changes:
                self._pass_over(page)
                continue
            await self._hand_to(observer, page)
            self._checkpoints.count(len(page.changes))
            if self._policy.automatic and self._policy.due(
                len(page.changes), now=self._clock()
            ):
                self._checkpoints.advance()
            await self._checkpoints.room_for_more(self._settings.observer.max_unacknowledged)
        assert self._draining is not None, "only parting stops the reading"
        await self._until_acknowledged()
        self._checkpoints.advance()
        return self._draining

    async def _hand_to(self, observer: Observer, page: Page) -> None:
        """Let the observer have a page; with manual checkpoints, in parts it has room for."""
        size = len(page.changes)
        if not self._policy.automatic:
            size = self._settings.observer.max_unacknowledged
        for first in range(0, len(page.changes), size):
            changes = page.changes[first : first + size]
            if not self._policy.automatic:
                await self._until_room_for(len(changes))
                if self._draining is not None:
                    return
            self._owned.check()
            began = self._clock()
            self._acknowledgements.deliver(changes)
            async with self._while_in_hand("process"):
                await observer.process(self._context, changes)
            if self._policy.automatic:
                self._acknowledgements.all_done()
                self._checkpoints.reached = page.continuation
            self._events.batch(self._owned.range_id, len(changes), self._clock() - began)

    @asynccontextmanager
    async def _while_in_hand(self, call: str) -> AsyncIterator[None]:
        """Bound a call of the observer by the time there is to part, once that is known."""
        try:
            async with asyncio.timeout_at(self._drain_deadline) as self._in_hand:
                yield
        except LeaseFenced:
            self._owned.lose("it could not be renewed in time")
        except TimeoutError as error:
            if self._drain_deadline is None or self._clock() < self._drain_deadline:
                raise
            raise ObserverFailed(
                self._owned.range_id, None, 1, f"{call} did not end in time for the handoff"
            ) from error
        finally:
            self._in_hand = None

    async def _until_room_for(self, changes: int) -> None:
        limit = self._settings.observer.max_unacknowledged
        while (
            self._acknowledgements.unacknowledged
            and self._acknowledgements.unacknowledged + changes > limit
            and self._draining is None
        ):
            await self._moved()

    async def _until_acknowledged(self) -> None:
        """Wait until all that was delivered is done, or the time to part is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._drain_deadline) as self._in_hand:
                while self._acknowledgements.unacknowledged:
                    await self._moved()
        self._in_hand = None

    async def _moved(self) -> None:
        self._context.moved.clear()
        await self._context.moved.wait()

    def _pass_over(self, page: Page) -> None:
        """At the end for now: there is time to write what policy had put off."""
        if not self._acknowledgements.unacknowledged:
            self._checkpoints.reached = page.continuation
        self._checkpoints.advance()

    async def _prepare_successors(self, ended: RangeEnded) -> None:
        """Create the leases of the ranges that go on, before this one counts as ended."""
        self._checkpoints.advance()
        self._events.ended(ended.range_id, [x.range for x in ended.successors])
        await create_successors(
            self._owned.lease.range,
            ended.successors,
            feed=self._feed,
            container=self._container,
            retrier=self._retrier,
            events=self._events,
            check=self._owned.check,
        )

    async def _close(self, observer: Observer, reason: CloseReason) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await observer.close(self._context, reason)
        except Exception as error:  # noqa: BLE001 - the border to the user's code
            self._events.close_failed(self._owned.range_id, error)

    def _reason_of_cancellation(self) -> CloseReason:
        if self._owned.lost:
            return CloseReason.LEASE_LOST
        return self._draining or CloseReason.FAILED

    async def _rest(self, seconds: float) -> None:
        """Wait, but not past the time to part."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._drain_now.wait()

    def check(self) -> None:
        """Bar the observer from the moment on that the lease may be another's."""
        if not self._owned.may_act:
            raise LeaseFenced(f"the lease of range {self._owned.range_id!r} is not ours")

    async def sleep(self, seconds: float) -> None:
        """Let a wrapper wait before it tries again, but not past the time to part."""
        await self._rest(seconds)
        if self._draining is not None:
            raise ObserverFailed(
                self._owned.range_id, None, 0, f"given up: {self._draining.value}"
            )

    # the lease

    async def _give_up(self, reason: CloseReason) -> None:
        """Write the lease for the last time; it carries the last checkpoint along."""
        last = await self._checkpoints.stop()
        ends: dict[CloseReason, Callable[[Lease], Lease]] = {
            CloseReason.RANGE_ENDED: Lease.finished,
            CloseReason.HANDED_OVER: self._passed_on,
            CloseReason.PAUSED: self._paused,
        }
        end = ends.get(reason, Lease.released)
        await self._retrier.ask("give up", partial(self._owned.give_up, end, last))

    def _passed_on(self, lease: Lease) -> Lease:
        """Hand over to whoever asks by now; if nobody living does, anyone may have it."""
        if lease.next_owner is not None and self._lives(lease.next_owner):
            return lease.handed_over()
        return lease.released()

    def _paused(self, lease: Lease) -> Lease:
        """Pause it for our own reason; what others have paused says why already."""
        released = lease.released()
        return released if lease.paused is not None else released.paused_because(self._pause)

    async def _release_at_last(self) -> None:
        """Spare the others the wait for the expiration, if the container answers at once."""
        if self.stuck:
            return
        try:
            async with asyncio.timeout(_LAST_RELEASE_TIMEOUT):
                await self._owned.give_up(Lease.released, self._checkpoints.unwritten)
        except (LeaseLost, LeaseGone, ContainerError, TimeoutError) as error:
            self._events.retrying("release", error, 0.0)

    async def _heed_requests(self) -> Never:
        """Part with the lease when a living host asks for it, or when it is paused."""
        while True:
            await self._owned.noticed.wait()
            self._owned.noticed.clear()
            lease = self._owned.lease
            if lease.paused is not None:
                self.part(CloseReason.PAUSED)
            elif lease.next_owner is not None and self._lives(lease.next_owner):
                self.part(CloseReason.HANDED_OVER)

    async def _keep_renewed(self) -> Never:
        interval = self._settings.leases.renew_interval
        await asyncio.sleep(interval * self._random.random())  # spread over the interval
        while True:
            try:
                async with asyncio.timeout_at(self._owned.fence_at):
                    await self._retrier.ask("renew", self._owned.renew)
            except TimeoutError:
                self._owned.lose("it could not be renewed in time")
            self._events.renewed()
            await asyncio.sleep(interval)

    async def _measure_lag(self) -> Never:
        interval = self._settings.feed.lag_interval
        while True:
            try:
                lag = await self._feed.lag(self._owned.range_id, self._checkpoints.reached)
                self._events.lag(self._owned.range_id, lag)
            except FeedError as error:
                self._events.retrying("lag", error, interval)
            await asyncio.sleep(interval)
