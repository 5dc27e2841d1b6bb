"""One worker for each lease: it reads the range, calls the observer, keeps the lease.

The observer is the body, and the renewer, the writer of checkpoints and the measuring of
lag are its companions: whatever ends the body, the lease is still being renewed while
the body winds down; and when the lease is lost, the body is cancelled with them.

How it ends:

* asked to part, or at the end of the range: the batch in hand is finished and
  checkpointed, the observer closed, the lease released (or marked as ended);
* the lease is lost: the observer is cancelled and closed, nothing more is written;
* cancelled (the time to stop is over): the observer is cancelled and closed; what it had
  in hand does not count as done, but the lease is released.

The lease is never given up before the observer's last call has returned.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Never

from feeds.errors import FeedError
from feeds.feed import Change, Feed, FeedRange, Page, RangeEnded
from leases.container import LeaseContainer
from leases.errors import ContainerError, LeaseGone, LeaseLost
from leases.lease import HostName, Lease
from observers.errors import ObserverFailed
from observers.observer import CloseReason, Observer
from observers.retrying import Sleep

from .checkpoints import CheckpointPolicy, Checkpoints
from .held import HeldLease
from .journal import Journal
from .patience import Patience
from .read_ahead import ReadAhead
from .settings import Settings

_CLOSE_TIMEOUT = 10.0
_LAST_RELEASE_TIMEOUT = 2.0

ObserverMaker = Callable[[FeedRange, Sleep], Observer]
"""Makes the observer of one range, wrapped as the settings say.

A wrapper that waits, to try again, must wait with the ``Sleep`` it is given: that ends
with ``ObserverFailed`` when the worker has to part.
"""


class WorkerContext:
    """What the observer of one lease is told; it may be used from any thread."""

    def __init__(
        self, feed: Feed, held: HeldLease, host: HostName, checkpoints: Checkpoints
    ) -> None:
        self._feed = feed
        self._lease = held.lease
        self._host = host
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._said = -1
        self.delivered = -1
        """The sequence of the last change handed to the observer."""

    @property
    def range(self) -> FeedRange:
        return self._lease.range

    @property
    def host(self) -> str:
        return self._host

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def checkpoint(self, change: Change) -> None:
        if change.range_id != self.range.id or change.sequence > self.delivered:
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered "
                f"here (range {self.range.id!r}, up to {self.delivered})"
            )
        if threading.get_ident() == self._thread:
            self._say(change)
        else:
            self._loop.call_soon_threadsafe(self._say, change)

    async def flush(self) -> None:
        await self._checkpoints.written()

    @property
    def done(self) -> bool:
        """Whether the observer has checkpointed everything that it was handed."""
        return self._said >= self.delivered

    def _say(self, change: Change) -> None:
        if change.sequence > self._said:
            self._said = change.sequence
            self._checkpoints.advance(self._feed.continuation_after(change))


class Worker:
    """Reads one range for one observer, for as long as the lease is ours."""

    def __init__(
        self,
        held: HeldLease,
        *,
        host: HostName,
        feed: Feed,
        container: LeaseContainer,
        make_observer: ObserverMaker,
        settings: Settings,
        journal: Journal,
        random: Random,
    ) -> None:
        self._held = held
        self._host = host
        self._feed = feed
        self._container = container
        self._make_observer = make_observer
        self._settings = settings
        self._journal = journal
        self._random = random
        self._patience = Patience(journal, random)
        self._clock = asyncio.get_running_loop().time
        self._checkpoints = Checkpoints(held, journal, self._patience)
        self._context = WorkerContext(feed, held, host, self._checkpoints)
        self._policy = CheckpointPolicy(settings.observer, now=self._clock())
        self._parting: CloseReason | None = None
        self._part_now = asyncio.Event()
        self._abandoned = False
        self._pages: ReadAhead | None = None
        self._observed = held.continuation  # the end of what was handed to the observer

    @property
    def lease(self) -> Lease:
        return self._held.lease

    def part(self, reason: CloseReason) -> None:
        """Wind down: finish what is in hand, checkpoint, and give up the lease."""
        self._parting = self._parting or reason
        self._part_now.set()
        if self._pages is not None:
            self._pages.stop()

    def abandon(self) -> None:
        """Stop waiting for a call that cannot be cancelled: the lease must then expire."""
        self._abandoned = True

    async def run(self) -> CloseReason:
        """Work until the lease is given up or lost; return why.

        Raise ``FeedError`` or ``ContainerError`` (in a group) where asking again cannot
        help. When cancelled, release the lease if that is quickly done.
        """
        reason = CloseReason.FAILED
        try:
            async with asyncio.TaskGroup() as group:
                companions = [
                    group.create_task(companion)
                    for companion in (
                        self._keep_renewed(),
                        self._checkpoints.write_for_ever(),
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
                reason = self._parting or reason
                await self._release_at_last()
            self._journal.parted(self.lease, reason)
        return reason

    async def _observe(self, group: asyncio.TaskGroup) -> CloseReason:
        """Open the observer and feed it, again after a rest whenever it has failed."""
        while True:
            observer = self._make_observer(self._held.lease.range, self._sleep)
            try:
                return await self._open_and_deliver(observer, group)
            except ObserverFailed as error:
                self._checkpoint_all_done()
                await self._checkpoints.written()  # reading begins there again
                if self._parting is None:
                    rest = self._settings.observer.reopen_delay
                    self._journal.observer_gave_up(self._held.range_id, error, rest)
                    await self._rest(rest)
            if self._parting is not None:
                return self._parting

    async def _open_and_deliver(
        self, observer: Observer, group: asyncio.TaskGroup
    ) -> CloseReason:
        reason: CloseReason | None = None
        pages = self._pages = ReadAhead(
            self._feed,
            self._held.range_id,
            self._settings.feed,
            patience=self._patience,
            random=self._random,
        )
        reading = group.create_task(pages.fill(self._held.continuation))
        try:
            if self._parting is not None:
                pages.stop()
            await observer.open(self._context)
            reason = await self._deliver(observer, pages)
            await self._checkpoints.written()
        except ObserverFailed:
            reason = CloseReason.FAILED
            raise
        finally:
            reading.cancel()
            self._pages = None
            await self._close(observer, reason or self._reason_of_cancellation())
        return reason

    async def _deliver(self, observer: Observer, pages: ReadAhead) -> CloseReason:
        """Hand page after page to the observer, until there is a reason to part."""
        unwritten = 0
        while (page := await pages.next()) is not None:
            if isinstance(page, RangeEnded):
                await self._prepare_successors(page)
                return CloseReason.RANGE_ENDED
            if not page.changes:
                self._pass_over(page)
                continue
            await self._hand_over_to(observer, page)
            await self._checkpoints.written(unwritten)  # of the batch before this one
            if self._policy.automatic and self._policy.due(
                len(page.changes), now=self._clock()
            ):
                unwritten = self._checkpoints.advance(self._observed)
        assert self._parting is not None, "only parting stops the reading"
        self._checkpoint_all_done()
        return self._parting

    async def _hand_over_to(self, observer: Observer, page: Page) -> None:
        self._held.check()
        began = self._clock()
        self._context.delivered = page.changes[-1].sequence
        await observer.process(self._context, page.changes)
        self._observed = page.continuation
        self._journal.batch(self._held.range_id, len(page.changes), self._clock() - began)

    def _pass_over(self, page: Page) -> None:
        """At the end for now: there is time to write what policy had put off."""
        if self._policy.automatic or self._context.done:
            self._observed = page.continuation
        self._checkpoint_all_done()

    def _checkpoint_all_done(self) -> None:
        if self._policy.automatic or self._context.done:
            self._checkpoints.advance(self._observed)

    async def _prepare_successors(self, ended: RangeEnded) -> None:
        """Create the leases of the ranges that go on, before this one counts as ended."""
        self._checkpoint_all_done()
        self._journal.ended(ended.range_id, [x.range for x in ended.successors])
        for successor in ended.successors:
            lease = Lease(range=successor.range, continuation=successor.start)
            await self._patience.ask("create", partial(self._container.create, lease))

    async def _close(self, observer: Observer, reason: CloseReason) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await observer.close(self._context, reason)
        except Exception as error:  # noqa: BLE001 - the border to the user's code
            self._journal.close_failed(self._held.range_id, error)

    def _reason_of_cancellation(self) -> CloseReason:
        if self._held.lost:
            return CloseReason.LEASE_LOST
        return self._parting or CloseReason.FAILED

    async def _give_up(self, reason: CloseReason) -> None:
        if reason is CloseReason.RANGE_ENDED:
            await self._patience.ask("finish", self._held.finish)
        else:
            await self._patience.ask("release", self._held.release)

    async def _release_at_last(self) -> None:
        """Spare the others the wait for the expiration, if the container answers at once."""
        if self._abandoned:
            return
        try:
            async with asyncio.timeout(_LAST_RELEASE_TIMEOUT):
                await self._held.release()
        except (LeaseLost, LeaseGone, ContainerError, TimeoutError) as error:
            self._journal.retrying("release", error, 0.0)

    async def _rest(self, seconds: float) -> None:
        """Wait, but not past the time to part."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._part_now.wait()

    async def _sleep(self, seconds: float) -> None:
        """Let a wrapper wait before it tries again, but not past the time to part."""
        await self._rest(seconds)
        if self._parting is not None:
            raise ObserverFailed(
                self._held.range_id, None, 0, f"given up: {self._parting.value}"
            )

    async def _keep_renewed(self) -> Never:
        interval = self._settings.leases.renew_interval
        await asyncio.sleep(interval * self._random.random())  # spread over the interval
        while True:
            try:
                async with asyncio.timeout_at(self._held.fence_at):
                    await self._patience.ask("renew", self._held.renew)
            except TimeoutError:
                self._held.lose("it could not be renewed in time")
            self._journal.renewed()
            await asyncio.sleep(interval)

    async def _measure_lag(self) -> Never:
        while True:
            try:
                lag = await self._feed.lag(self._held.range_id, self._observed)
                self._journal.lag(self._held.range_id, lag)
            except FeedError as error:
                self._journal.retrying("lag", error, self._settings.feed.lag_interval)
            await asyncio.sleep(self._settings.feed.lag_interval)
