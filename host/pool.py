"""The workers of one host, from their leases to their ends."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.failures import incomplete_stop
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.renewer import LeaseRenewer
from changefeed.host.worker import Worker
from changefeed.leases.fleet import Fleet
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import Failure

_CANCELS = 4
_FIRST_PATIENCE = 2.5  # enough for the last release of a lease
_CANCEL_PATIENCE = 1.0


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
