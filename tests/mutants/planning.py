"""Breaks of rules 3 and 4: who gets which lease, and how it gets there."""

import asyncio
from collections.abc import Collection, Sequence

from changefeed.feeds.feed import RangeId
from changefeed.host import decide
from changefeed.host.calls import Drain
from changefeed.host.coordinator import Coordinator
from changefeed.host.decide import _Steals
from changefeed.host.delivery import Delivery
from changefeed.host.worker import Worker
from changefeed.leases import plan
from changefeed.leases.fleet import Fleet
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.plan import Action
from changefeed.stores.memory import MemoryStore

from .mutant import Patch, mutant, put_in_any_version

_DECIDE = "unit/host/test_decide.py"
_DRAIN = "unit/host/test_drain.py"


@mutant(rule=3, kills="unit/leases/test_plan.py")
def the_plan_moves_more_than_it_must(m: Patch) -> None:
    def in_turn(
        leases: Sequence[Lease], fleet: Collection[HostName]
    ) -> dict[RangeId, HostName]:
        names = sorted(fleet)
        return {x.range_id: names[n % len(names)] for n, x in enumerate(leases) if names}

    m.patch(plan, "plan", in_turn)


@mutant(rule=3, guarantee=8, kills=_DECIDE)
def steals_do_not_wait_for_quiet(m: Patch) -> None:
    m.patch(decide, "_Steals", lambda *known, **_: _Steals(*known, quiet=True))


@mutant(rule=3, guarantee=8, kills=_DECIDE)
def to_take_over_what_expired_waits_for_quiet(m: Patch) -> None:
    old = _Steals.step

    def step(self: _Steals, action: Action, lease: Lease) -> Action | None:
        found: Action | None = old(self, action, lease)
        waits = action is Action.ACQUIRE_EXPIRED and not self._quiet
        return None if waits else found

    m.patch(_Steals, "step", step)


@mutant(rule=3, kills="unit/host/test_coordinator.py")
def a_write_that_another_host_won_ends_ours(m: Patch) -> None:
    async def in_turn(self: Coordinator, step: tuple[Action, Lease], fleet: Fleet) -> None:
        await self._do(*step, fleet)

    m.patch(Coordinator, "_in_turn", in_turn)


@mutant(rule=3, kills="contract/test_lease_containers.py::test_of_many_contenders_for_a_lease")
def a_lease_may_be_written_in_any_version(m: Patch) -> None:
    m.patch(MemoryStore, "put", put_in_any_version)


@mutant(rule=4, kills=f"{_DECIDE} {_DRAIN}")
def every_steal_is_immediate(m: Patch) -> None:
    m.patch(_Steals, "_of", lambda *_: Action.ROB)


@mutant(rule=4, kills=_DECIDE)
def an_owner_that_never_hands_over_keeps_its_lease(m: Patch) -> None:
    old = _Steals._of

    def of(self: _Steals, lease: Lease) -> Action | None:
        step: Action | None = old(self, lease)
        return None if lease.next_owner == self._me and step is Action.ROB else step

    m.patch(_Steals, "_of", of)


@mutant(rule=4, guarantee=10, kills=_DRAIN)
def a_lease_is_handed_over_before_its_reader_is_done(m: Patch) -> None:
    old = Worker._leave

    def leave(self: Worker, lease: Lease) -> None:
        old(self, lease)
        given_up = self.owned.give_up(self._handed_over, self.owned.stored)
        asyncio.get_running_loop().create_task(given_up)

    m.patch(Worker, "_leave", leave)


@mutant(rule=4, guarantee=9, kills="unit/host/test_worker.py")
def a_lease_is_handed_over_to_the_dead(m: Patch) -> None:
    m.patch(Worker, "_handed_over", lambda _, lease: lease.handed_over())


@mutant(rule=4, guarantee=27, kills=_DRAIN)
def a_handoff_may_take_for_ever(m: Patch) -> None:
    old = Drain.begin
    m.patch(Drain, "begin", lambda self, reason, **_: old(self, reason, within=None))


@mutant(rule=4, kills=_DRAIN)
def what_was_read_ahead_is_delivered_after_the_request(m: Patch) -> None:
    m.patch(Delivery, "stop", lambda self: self._context.announce_handover())
