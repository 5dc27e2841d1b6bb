"""Breaks of rules 5, 6 and 7: what a host may still do, and what it knows of its writes."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.host import owned_lease
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.coordinator import Coordinator
from changefeed.host.membership import Membership, name_taken
from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.container import LeaseContainer
from changefeed.leases.cosmos import documents
from changefeed.leases.lease import Lease
from changefeed.leases.stored import StoredLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.observers.call import CalledObserver
from changefeed.observers.observer import Observer
from changefeed.runtime.errors import StoreUnavailable
from changefeed.transactional import observer as transactional
from changefeed.transactional.observer import TransactionalObserver

from .mutant import Patch, mutant

_OWNED = "unit/host/test_owned_lease.py"
_KEPT = "unit/host/test_kept_by_heartbeats.py"
_REBALANCE = "unit/host/test_coordinator.py"
_CONTAINERS = "contract/test_lease_containers.py"
_ROWS = "integration/test_transactional.py::test"


@mutant(rule=5, kills=_OWNED)
def a_host_does_not_fence_itself(m: Patch) -> None:
    m.patch(OwnedLease, "may_act", property(lambda self: not self.lost))


@mutant(rule=5, guarantee=1, kills=_OWNED)
def the_fence_counts_from_the_answer_of_a_renewal(m: Patch) -> None:
    old = OwnedLease.renew

    async def renew(self: OwnedLease, *change: Any) -> None:
        await old(self, *change)
        self._fence_at = self._clock() + self._rules.shown.held_for

    m.patch(OwnedLease, "renew", renew)


@mutant(rule=11, kills="unit/host/test_forgetful_store.py")
def what_a_store_has_forgotten_is_taken_for_lost(m: Patch) -> None:
    m.patch(OwnedLease, "_is_forgotten_in", lambda *_: False)


@mutant(rule=5, guarantee=4, kills=_KEPT)
def a_heartbeat_lifts_a_fence_that_has_passed(m: Patch) -> None:
    def beat(self: OwnedLease, sent: float) -> None:
        self._beat_at = sent
        self._keep_from(min(self._beat_at, self._seen_at))

    m.patch(OwnedLease, "beat", beat)


@mutant(rule=5, guarantee=20, kills="unit/host/test_worker.py")
def an_observer_is_called_under_a_lease_that_is_over(m: Patch) -> None:
    old = CalledObserver.__init__

    def unfenced(self: CalledObserver, observer: Observer, **more: Any) -> None:
        old(self, observer, seconds=more.get("seconds"))

    m.patch(CalledObserver, "__init__", unfenced)


@mutant(rule=5, kills=f"{_CONTAINERS}::test_nor_can_one_that_has_read_the_new_version")
def a_checkpoint_of_an_epoch_that_is_over_counts(m: Patch) -> None:
    m.patch(StoredLeases, "checkpoint", StoredLeases.replace)


@mutant(rule=5, guarantee=13, kills="unit/leases/test_two_stores.py")
def to_acquire_does_not_claim_the_checkpoint(m: Patch) -> None:
    async def acquire(self: TwoStoreLeases, lease: Lease) -> Lease | None:
        await self._replace_ownership(lease)
        return await self.read(lease.range_id)

    m.patch(TwoStoreLeases, "acquire", acquire)


@mutant(rule=5, guarantee=34, kills=f"{_ROWS}_a_former_owner_commits_nothing[sqlite]")
def rows_of_a_former_owner_are_committed(m: Patch) -> None:
    unfenced = transactional._MOVE.replace("epoch = $5", "$5 = $5")
    m.patch(transactional, "_MOVE", unfenced)


@mutant(
    rule=6,
    guarantee=34,
    kills=f"{_ROWS}_a_commit_whose_answer_is_lost_is_not_repeated[sqlite-False]",
)
def rows_whose_commit_was_not_answered_are_written_again(m: Patch) -> None:
    async def left_of(_: object, __: object, changes: Sequence[Change]) -> Sequence[Change]:
        return changes

    m.patch(TransactionalObserver, "_left_of", left_of)


@mutant(rule=6, guarantee=6, kills=_OWNED)
def a_host_does_not_know_its_own_unanswered_write(m: Patch) -> None:
    async def read_again(self: OwnedLease, _: Lease) -> None:
        self.lose("it was written")

    m.patch(OwnedLease, "_read_again", read_again)


@mutant(rule=6, guarantee=6, kills=_OWNED)
def what_another_owns_by_now_is_taken_over(m: Patch) -> None:
    async def read_again(self: OwnedLease, _: Lease) -> None:
        stored = await self._container.read(self.range_id)
        assert stored is not None
        self._take_over(stored)

    m.patch(OwnedLease, "_read_again", read_again)


@mutant(rule=6, guarantee=12, kills=_REBALANCE)
def a_claim_without_an_answer_counts_as_owned(m: Patch) -> None:
    old = owned_lease.acquire

    async def acquire(container: LeaseContainer, lease: Lease, **how: Any) -> OwnedLease | None:
        try:
            owned: OwnedLease | None = await old(container, lease, **how)
        except StoreUnavailable:
            taken, clock = how.pop("taken"), how["clock"]
            whole = await container.read(lease.range_id)
            return OwnedLease(container, taken(whole), sent=clock(), **how)
        return owned

    m.patch(owned_lease, "acquire", acquire)


@mutant(rule=6, kills="unit/host/test_membership.py")
def a_host_takes_its_own_unanswered_heartbeat_for_a_namesake(m: Patch) -> None:
    async def beat(self: Membership) -> None:
        if not await self._has_written():
            raise name_taken(self._member.name, self._member.incarnation)

    m.patch(Membership, "_beat", beat)


@mutant(rule=6, guarantee=11, kills=_REBALANCE)
def an_unclear_claim_stays_behind_when_a_host_leaves(m: Patch) -> None:
    m.patch(Coordinator, "_is_ours_unread", lambda *_, **__: False)


@mutant(rule=7, guarantee=7, kills=_OWNED)
def writes_of_one_lease_race(m: Patch) -> None:
    old = OwnedLease.__init__

    def hold(self: OwnedLease, *lease: Any, **how: Any) -> None:
        old(self, *lease, **how)
        self._writing = AsyncExitStack()  # type: ignore[assignment]

    m.patch(OwnedLease, "__init__", hold)


@mutant(rule=7, guarantee=18, kills="unit/leases/cosmos/test_documents.py::test_a_renewal")
def a_checkpoint_writes_back_the_ownership_that_it_knows(m: Patch) -> None:
    m.patch(documents, "checkpoint_changes", documents.changes)


@mutant(rule=7, kills="unit/host/test_checkpointer.py")
def a_lease_is_given_up_beside_a_checkpoint_under_way(m: Patch) -> None:
    async def stop(self: Checkpointer) -> None:
        self._stopped = True

    m.patch(Checkpointer, "stop", stop)


@mutant(rule=7, guarantee=10, kills=_REBALANCE)
def a_lease_that_a_worker_has_is_released_beside_it(m: Patch) -> None:
    m.patch(Coordinator, "_is_ours_unread", lambda self, lease, **_: lease.owner == self._me)
