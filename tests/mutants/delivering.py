"""Breaks of rules 12 and 13: stopping, and what is delivered how often."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.feed import Change, Position
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.delivery import Delivery
from changefeed.host.host import Host
from changefeed.host.membership import Membership
from changefeed.host.worker import WorkerPool
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.leases.lease import Lease, RangeEnd
from changefeed.leases.stored import StoredLeases
from changefeed.observers.call import ObserverContext
from changefeed.runtime.stop import Stop
from changefeed.transactional import observer as transactional
from changefeed.transactional.rows import Row

from .mutant import Patch, mutant, nothing

_STORIES = "unit/host/test_fleet_stories.py"
_WORKER = "unit/host/test_worker.py"
_PROGRESS = "unit/leases/test_progress.py"
_OBSERVERS = "unit/observers/test_range_observers.py"
_FAILING = "unit/host/test_failing_observers.py"
_CONTAINERS = "contract/test_lease_containers.py"


@mutant(rule=12, kills="unit/host/test_cut_off.py")
def a_second_signal_is_ignored(m: Patch) -> None:
    m.patch(Stop, "request", lambda self: self.requested.set())


@mutant(rule=12, kills="unit/host/test_pool.py")
def a_lease_that_is_acquired_during_a_stop_is_kept(m: Patch) -> None:
    old = WorkerPool.stop

    def stop(self: WorkerPool) -> None:
        old(self)
        self._stopping = False

    m.patch(WorkerPool, "stop", stop)


@mutant(rule=12, kills="unit/host/test_embedding.py")
def a_host_leaves_its_record_behind(m: Patch) -> None:
    m.patch(Membership, "leave", nothing)


@mutant(rule=12, kills=_STORIES)
def a_stop_that_cut_work_off_looks_orderly(m: Patch) -> None:
    m.patch(WorkerPool, "incomplete", property(lambda _: None))


@mutant(rule=12, kills=_STORIES)
def a_released_lease_keeps_its_owner(m: Patch) -> None:
    old = Lease.released
    m.patch(
        Lease,
        "released",
        lambda self: replace(old(self), owner=self.owner, incarnation=self.incarnation),
    )


@mutant(rule=12, kills=_STORIES)
def a_host_that_stops_does_not_let_observers_finish(m: Patch) -> None:
    async def shut_down(_: Host, pool: WorkerPool, balancing: Any) -> None:
        balancing.cancel()
        await pool.cancel_all()

    m.patch(Host, "_shut_down", shut_down)


@mutant(rule=13, kills=_OBSERVERS)
def an_acknowledgement_counts_for_all_before_it(m: Patch) -> None:
    m.patch(ObserverContext, "_count", ObserverContext._count_up_to)


@mutant(rule=13, kills=_PROGRESS)
def an_empty_page_passes_over_what_is_not_acknowledged(m: Patch) -> None:
    old = Progress.read

    def read(
        self: Progress, changes: Sequence[Change], end: Position | None
    ) -> Sequence[Change]:
        if not changes:
            self.done(self.open)
        return old(self, changes, end)

    m.patch(Progress, "read", read)


@mutant(rule=13, guarantee=29, kills=_PROGRESS)
def what_a_former_owner_has_done_is_forgotten_before_it_is_read(m: Patch) -> None:
    m.patch(Progress, "_resuming", property(lambda _: False))


@mutant(rule=13, guarantee=29, kills=_PROGRESS)
def a_key_that_waits_is_no_hole(m: Patch) -> None:
    old = Progress._holes
    m.patch(Progress, "_holes", lambda self, failures: (old(self, failures)[0], ()))


@mutant(rule=13, guarantee=29, kills=f"{_FAILING}::test_nothing_done_behind_keys_that_wait")
def parts_of_a_split_begin_without_its_holes(m: Patch) -> None:
    m.patch(RangeEnd, "checkpoint_of", lambda _, child: Checkpoint(child.start))


@mutant(rule=13, guarantee=33, kills="unit/host/test_kept_positions.py")
def what_an_observer_has_kept_does_not_count(m: Patch) -> None:
    m.patch(Delivery, "begin", lambda *_: None)


@mutant(rule=13, guarantee=33, kills="unit/host/test_kept_positions.py")
def the_lease_does_not_follow_where_an_observer_begins(m: Patch) -> None:
    old = Progress.begin

    def begin(self: Progress, resumed: Checkpoint) -> None:
        old(self, resumed)
        self.moves -= 1

    m.patch(Progress, "begin", begin)


@mutant(
    rule=13,
    kills="integration/test_transactional.py::test_rows_and_position_come_together_or_not_at_all[sqlite]",
)
def a_lease_wins_over_the_position_beside_the_rows(m: Patch) -> None:
    def opened(mine: Row, _: object, **__: object) -> tuple[Row, Sequence[Row]]:
        return mine, ()

    m.patch(transactional, "opened", opened)


@mutant(rule=13, kills=f"{_CONTAINERS}::test_a_position_that_is_carried_along")
def to_acquire_writes_an_old_checkpoint_back(m: Patch) -> None:
    m.patch(StoredLeases, "acquire", StoredLeases.replace)


@mutant(rule=13, guarantee=14, kills=_WORKER)
def a_crash_may_repeat_any_number_of_changes(m: Patch) -> None:
    async def room_for(self: Checkpointer, changes: int) -> bool:
        left = self._settings.max_unacknowledged - self._progress.unacknowledged
        return changes + self._progress.uncovered <= left

    m.patch(Checkpointer, "room_for", room_for)


@mutant(rule=13, guarantee=14, kills="unit/host/test_checkpointer.py")
def a_checkpoint_under_way_counts_for_a_later_one(m: Patch) -> None:
    async def write(self: Checkpointer) -> None:
        while self._written < self._said:
            await self._owned.checkpoint(self.reached)
            self._written = self._said
            self._moved.set()
        self._idle.set()

    m.patch(Checkpointer, "_write", write)
