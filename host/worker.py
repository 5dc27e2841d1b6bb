"""One worker for each lease: it keeps the lease while its range is delivered.

The delivery is the body; beside it there is what reads ahead, and what writes a checkpoint
while there is one to write. Whatever ends the body, the lease is still being renewed
(``host.renewer``) while the body winds down; and when the lease is lost, all are cancelled.

How it ends:

* asked to stop (another host asks for the lease, it is paused, the host stops), or at the
  end of the range: nothing more is delivered, what is in hand is finished and
  checkpointed, the observer closed, and the lease handed over, released or marked as
  ended, in one write with the last checkpoint;
* the lease is lost: the observer is cancelled and closed, nothing more is written;
* cancelled (the time to stop is over): the observer is cancelled and closed; what it had
  in hand does not count as done, but the lease is released, with what was done before;
* the observer has failed for good, and the settings say so: the lease is released, and
  paused in the same write.

The lease is never given up before the observer's last call has returned. A call that
cannot be ended, a plain function stuck in its thread, therefore keeps the lease until it
expires or is force-stolen. With a time limit (``ObserverStuck``) the worker does not wait
for that: it ends, calls the observer no more, and leaves the lease to expire.

The pool has the workers of one host, from their leases to their ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.calls import Drain
from changefeed.host.delivery import Delivery
from changefeed.host.failures import incomplete_stop
from changefeed.host.load_meter import LoadMeter
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.renewer import LeaseRenewer
from changefeed.host.shared import WorkerContext
from changefeed.leases.errors import LeaseLost
from changefeed.leases.fleet import Fleet
from changefeed.leases.lease import HostName, KeyRequest, Lease
from changefeed.observers.observer import CloseReason
from changefeed.runtime.errors import Failure, StoreError

_LAST_RELEASE_TIMEOUT = 2.0
_MAX_DELAY_AT_END = 1.0  # others wait for the lease, and a stop has not long

_CANCELS = 4
_FIRST_PATIENCE = 2.5  # enough for the last release of a lease
_CANCEL_PATIENCE = 1.0


class Worker:
    """Reads one range for one observer, for as long as the lease is ours."""

    def __init__(self, owned: OwnedLease, shared: WorkerContext) -> None:
        self.owned = owned
        self._shared = shared
        self._settings = shared.settings
        self._events = shared.events
        self._retrier = shared.retrier
        self._group = asyncio.TaskGroup()
        self._drain = Drain()
        self.meter = LoadMeter(
            owned.lease,
            cooldown=shared.rules.shown.cooldown,
            shared=shared.shared_time,
        )
        self.delivered = False
        """Whether nothing is in hand any more: the lease is all that is left to give up."""
        self.left_to_expire: str | None = None
        """Why the lease still has our name though nothing reads it, once that is so."""
        self._asked: KeyRequest | None = None  # by a person, the last time
        self.delivery = Delivery(
            owned,
            shared,
            drain=self._drain,
            meter=self.meter,
            start=self._start,
        )
        self._checkpoints = self.delivery.checkpoints
        owned.noticed = self._look_at

    @property
    def reached(self) -> Position:
        """The position below which everything is done."""
        return self._checkpoints.reached.position

    def stop(self) -> None:
        """Drain in the budget of a host that stops: finish, checkpoint, give up the lease."""
        self._drain.begin(CloseReason.STOPPING, within=None)
        self.delivery.stop()

    def _leave(self, lease: Lease) -> None:
        """Drain, since the lease is paused, or else another host has asked for it."""
        reason = CloseReason.HANDED_OVER if lease.paused is None else CloseReason.PAUSED
        self._drain.begin(reason, within=self._settings.leases.max_handoff_time)
        self.delivery.stop()

    async def run(self) -> CloseReason:
        """Work until the lease is given up or lost; return why.

        Raise ``FeedError`` or ``StoreError`` (in a group) where asking again cannot
        help, and ``ObserverStuck``. When cancelled, release the lease if that is quickly done.
        """
        reason = CloseReason.FAILED
        try:
            async with self._group as group:
                self._look_at(self.owned.lease)
                reason = await self.delivery.run(group)
                assert reason is not CloseReason.RANGE_ENDED or not self.delivery.in_hand, (
                    f"range {self.owned.range_id!r} would end with changes in hand"
                )
                self.delivered = True
                await self._give_up(reason)
        except* LeaseLost:
            if not self.owned.given_up:
                reason = CloseReason.LEASE_LOST
        finally:
            try:
                if not self.owned.given_up and reason is not CloseReason.LEASE_LOST:
                    reason = await self._release_at_last(self._drain.reason or reason)
            finally:
                self._report_end(reason)
        return reason

    # giving it up

    async def _give_up(self, reason: CloseReason) -> None:
        """Write the lease for the last time; it carries the last checkpoint along."""
        await self._checkpoints.stop()
        give_up = partial(self._give_up_in_turn, self._end_for(reason))
        await self._retrier.call("give up", give_up, longest_delay=_MAX_DELAY_AT_END)

    async def _give_up_in_turn(self, end: Callable[[Lease], Lease]) -> None:
        async with self._shared.give_ups:
            last = self._checkpoints.reached
            await self.owned.give_up(lambda x: end(self.described(x)), last)

    def _end_for(self, reason: CloseReason) -> Callable[[Lease], Lease]:
        match reason:
            case CloseReason.RANGE_ENDED:
                return self._ended
            case CloseReason.HANDED_OVER:
                return self._handed_over
            case CloseReason.PAUSED:
                return self._paused
            case _:
                return Lease.released

    def _ended(self, lease: Lease) -> Lease:
        """End it; it may have ended already, by a write that was not answered."""
        end = self.delivery.end
        assert end is not None, f"{lease.range_id!r} ends, and goes on nowhere"
        assert lease.end in (None, end), f"{lease.range_id!r} has ended in something else"
        return lease if lease.ended else lease.ended_in(end)

    def _handed_over(self, lease: Lease) -> Lease:
        """Hand over to the host that asks by now; if it is dead, any host may have it."""
        if lease.next_owner in self._events.activity.fleet.alive:
            return lease.handed_over()
        return lease.released()

    def _paused(self, lease: Lease) -> Lease:
        """Pause it for our own reason; what others have paused says why already."""
        if lease.paused is not None:
            return lease.released()
        return lease.released().paused_because(self.delivery.pause_reason)

    async def _release_at_last(self, reason: CloseReason) -> CloseReason:
        """Spare the others the wait for the expiration, if the container answers soon."""
        if self.delivery.observers.stuck:
            self.left_to_expire = "a call of the observer could not be ended"
            return reason
        self.left_to_expire = "it could not be released in time"  # until it is
        release = partial(self._give_up_in_turn, Lease.released)
        try:
            async with asyncio.timeout(_LAST_RELEASE_TIMEOUT):
                await self._retrier.call("release", release)
        except LeaseLost:
            reason = CloseReason.LEASE_LOST
        except (StoreError, TimeoutError) as error:
            why = str(error) or "the lease container did not answer"
            self.left_to_expire = f"it could not be released: {why}"
            return reason
        self.left_to_expire = None
        return reason

    def _report_end(self, reason: CloseReason) -> None:
        if self.left_to_expire is None or reason is CloseReason.LEASE_LOST:
            self._events.given_up(self.owned.lease, reason)
        else:
            self._events.left_to_expire(self.owned.lease, self.left_to_expire)

    # keeping it

    def _look_at(self, lease: Lease) -> None:
        """Stop if a living host asks for the lease, or it is paused; end if it is lost. Have
        the request of a host that is gone cleared. Else do what a person asks.
        """
        asker, asked = lease.next_owner, lease.key_request
        if self.owned.lost:
            self._start(self._end_as_lost())
        elif self.delivered:
            return  # the last write says how it goes on
        elif lease.paused is not None or asker in self._events.activity.fleet.alive:
            self._leave(lease)
        elif asker is not None and self._is_gone(asker):
            self.owned.doubted = True  # a renewal clears the request (``described``)
        elif asked is not None and not asked.answer and asked != self._asked:
            self._asked = asked
            self._start(self._answer(asked))

    async def _answer(self, asked: KeyRequest) -> None:
        answered = self.delivery.asked(asked)
        await self._retrier.call("answer", partial(self.owned.answer, asked, answered))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the body; drop it once one task has failed, or all have ended."""
        try:
            self._group.create_task(work)
        except RuntimeError:
            work.close()

    async def _end_as_lost(self) -> None:
        self.owned.check()

    def described(self, lease: Lease) -> Lease:
        """Have the lease say how the observer gets on, and what the range costs, and carry no
        request of a host that is gone.
        """
        self._events.waited_for(
            self.owned.range_id, self._settings.observer, self.delivery.watch.overdue
        )
        health = self._events.activity.of(self.owned.range_id).health
        if lease.next_owner is not None and self._is_gone(lease.next_owner):
            lease = lease.requested_by(None)
        return self.meter.written_to(lease.with_health(health))

    def _is_gone(self, asker: HostName) -> bool:
        """Whether the last listing has the request of a host that it does not show alive. One
        that asks since then may have just come.
        """
        fleet = self._events.activity.fleet
        listed = fleet.leases.get(self.owned.range_id)
        seen = listed is not None and listed.next_owner == asker
        return seen and asker not in fleet.alive


class WorkerPool:
    """Runs one worker for each lease, as tasks of ``group``, while ``renewer`` keeps it.

    ``guard`` runs a worker, which it is given by name, and takes its failure; the other workers
    go on. Calls ``started`` when one begins, and ``ended`` when one is gone: others may be
    waiting for what it leaves.
    """

    def __init__(
        self,
        make_worker: Callable[[OwnedLease], Worker],
        *,
        group: asyncio.TaskGroup,
        renewer: LeaseRenewer,
        guard: Callable[[Coroutine[Any, Any, object], str], Awaitable[None]],
        started: Callable[[RangeId], None] = lambda _: None,
        ended: Callable[[], None],
    ) -> None:
        self._make_worker = make_worker
        self._group = group
        self._renewer = renewer
        self._guard = guard
        self._started = started
        self._ended = ended
        self.workers: dict[RangeId, Worker] = {}
        """By range."""
        self._tasks: dict[asyncio.Task[None], Worker] = {}
        self._stopping = False
        self.stuck: set[RangeId] = set()
        """What has no worker any more, but perhaps a call that could not be ended."""
        self.left_to_expire: set[RangeId] = set()
        """What has no worker any more, and still our name on the lease."""
        self._cut_off: set[RangeId] = set()
        self._not_closed: set[RangeId] = set()

    @property
    def incomplete(self) -> Failure | None:
        """What has not ended in order; ``None`` if all has."""
        return incomplete_stop(self._cut_off, self.left_to_expire, self._not_closed)

    @property
    def leases(self) -> Mapping[RangeId, Lease]:
        """The leases that have a worker, as last written."""
        return {name: worker.owned.lease for name, worker in self.workers.items()}

    @property
    def in_hand(self) -> Mapping[RangeId, Position]:
        """The ranges whose observers have changes in hand, and the positions before these."""
        return {x: y.reached for x, y in self.workers.items() if y.delivery.in_hand}

    def start(self, owned: OwnedLease) -> None:
        """Put a worker to a lease that was just acquired."""
        assert owned.range_id not in self.workers, (
            f"lease {owned.range_id!r} was acquired in epoch {owned.lease.epoch}, and has a "
            f"worker of epoch {self.workers[owned.range_id].owned.lease.epoch}"
        )
        worker = self._make_worker(owned)
        self.workers[owned.range_id] = worker
        self._renewer.keep(owned, worker.described)
        self._started(owned.range_id)
        self._tasks[self._group.create_task(self._run(worker))] = worker
        if self._stopping:  # the lease was on its way
            worker.stop()

    def beat(self, sent: float) -> None:
        """Count a heartbeat of this host, sent then and just answered, for all leases."""
        for worker in self.workers.values():
            worker.owned.beat(sent)

    def listed(self, fleet: Fleet, splits: Mapping[RangeId, int]) -> None:
        """Have each worker look at its lease as listed. Have the ranges of ``splits`` split
        into so many parts, and no others.
        """
        for range_id, worker in self.workers.items():
            worker.owned.listed(fleet.leases.get(range_id), asked=fleet.at.asked)
            worker.delivery.split_into = splits.get(range_id)
        self._renewer.listed()

    def stop(self) -> None:
        """Drain every worker, those too that are yet to start."""
        self._stopping = True
        for worker in self.workers.values():
            worker.stop()

    async def ended(self) -> None:
        """Wait until no worker is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        assert not self.workers, f"no task runs for {sorted(self.workers)}"

    async def cancel_all(self) -> None:
        """Cancel what is left; give up on calls that do not end even then."""
        for range_id, worker in self.workers.items():
            if not worker.delivered:
                left = self._cut_off if worker.delivery.in_hand else self._not_closed
                left.add(range_id)
        for attempt in range(_CANCELS):
            if not self._tasks:
                return
            for task, worker in self._tasks.items():
                if attempt:
                    worker.delivery.observers.stuck = True  # it is not waited for any more
                task.cancel()
            patience = _CANCEL_PATIENCE if attempt else _FIRST_PATIENCE
            await asyncio.wait(self._tasks, timeout=patience)

    async def _run(self, worker: Worker) -> None:
        task, name = asyncio.current_task(), worker.owned.range_id
        assert task is not None, "a coroutine that runs has a task"
        try:
            await self._guard(worker.run(), f"the worker of range {name}")
        finally:
            if worker.delivery.observers.stuck:
                self.stuck.add(name)
            if worker.left_to_expire is not None:
                self.left_to_expire.add(name)
            assert self.workers.get(name) is worker, f"lease {name!r} has another worker"
            del self.workers[name]
            self._renewer.let_go(name)
            del self._tasks[task]
            self._ended()
