"""Breaks of rules 1 and 2: who is dead, and who is there."""

from dataclasses import replace

from changefeed.host import coordinator, owned_lease
from changefeed.host.membership import Membership
from changefeed.leases import fleet, plan
from changefeed.leases.fleet import ExpiryWatch
from changefeed.leases.lease import Lease
from changefeed.stores.memory import MemoryStore

from .mutant import Patch, mutant, nothing, put_in_any_version

_EXPIRY = "unit/leases/test_expiry.py"
_MEMBERSHIP = "unit/host/test_membership.py"


@mutant(rule=1, kills=_EXPIRY)
def a_request_keeps_a_dead_owner_alive(m: Patch) -> None:
    sign = property(lambda self: (self.epoch, self.renewals, self.next_owner))
    m.patch(Lease, "sign_of_life", sign)


@mutant(rule=1, kills="unit/leases/test_lease.py")
def a_checkpoint_is_a_sign_of_life(m: Patch) -> None:
    old = Lease.advanced_to
    m.patch(Lease, "advanced_to", lambda self, at: old(self, at).renewed())


@mutant(rule=1, guarantee=1, kills=_EXPIRY)
def expiry_counts_from_the_question(m: Patch) -> None:
    old = ExpiryWatch.still_since
    m.patch(
        ExpiryWatch,
        "still_since",
        lambda self, listed, at: old(self, listed, replace(at, answered=at.asked)),
    )


@mutant(rule=1, guarantee=3, kills=_EXPIRY)
def a_wrong_clock_takes_a_lease_that_was_never_watched(m: Patch) -> None:
    old = ExpiryWatch.judge_by
    m.patch(
        ExpiryWatch, "judge_by", lambda self, most, **_: old(self, most, shortest_watch=0.0)
    )


@mutant(rule=1, kills="unit/leases/test_fleet.py")
def a_heartbeat_keeps_no_lease(m: Patch) -> None:
    m.patch(fleet, "_beats_of", lambda *_, **__: {})


@mutant(rule=1, guarantee=5, kills="unit/host/test_coordinator.py")
def what_an_owner_has_that_only_seems_dead_is_taken(m: Patch) -> None:
    m.patch(coordinator, "fence_owner", nothing)


@mutant(rule=2, guarantee=28, kills=_MEMBERSHIP)
def a_second_host_starts_under_the_name_of_a_living_one(m: Patch) -> None:
    m.patch(Membership, "_refuse_if_alive", nothing)


@mutant(rule=2, kills="unit/host/test_fleet_stories.py::test_a_host_whose_supervisor")
def a_host_waits_for_a_process_that_is_known_to_have_ended(m: Patch) -> None:
    m.patch(Membership, "_may_take_over", lambda *_: False)


@mutant(rule=2, kills="unit/host/test_owned_lease.py")
def another_start_under_our_name_is_taken_for_us(m: Patch) -> None:
    m.patch(owned_lease, "_holder", lambda lease: (lease.owner, lease.epoch))


@mutant(rule=2, guarantee=12, kills="unit/leases/test_plan.py unit/host/test_fleet_stories.py")
def a_host_that_restarts_waits_for_its_own_leases_to_expire(m: Patch) -> None:
    old = plan._about_assigned
    m.patch(
        plan,
        "_about_assigned",
        lambda lease, me, expired, living: (
            None if lease.owner == me and not expired else old(lease, me, expired, living)
        ),
    )


@mutant(
    rule=2, kills="contract/test_lease_containers.py::test_of_two_incarnations_under_one_name"
)
def a_member_record_may_be_overwritten_by_anyone(m: Patch) -> None:
    m.patch(MemoryStore, "put", put_in_any_version)
