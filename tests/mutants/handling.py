"""Breaks of rules 8 to 11: user code, order, failures, and what may pass."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from changefeed.cli import exit_codes
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Change
from changefeed.host import coordinator, decide, failures, reader
from changefeed.host.calls import CallWatch
from changefeed.host.careful_delivery import CarefulDelivery
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.delivery import Delivery
from changefeed.host.failures import Retrier
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.renewer import LeaseRenewer
from changefeed.host.worker import Worker, WorkerPool
from changefeed.leases import deaths
from changefeed.leases.deaths import Deaths
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, RangeEnd
from changefeed.leases.segments import Segments
from changefeed.observers import call
from changefeed.observers.adapters import _Adapted
from changefeed.observers.call import CalledObserver, ObserverContext
from changefeed.observers.dead_letters import writer
from changefeed.observers.errors import ObserverStuck
from changefeed.observers.judge import Judge, Waiting
from changefeed.observers.key_scheduler import KeyScheduler
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.exit_codes import FAILED

from .mutant import Patch, mutant, nothing

_WORKER = "unit/host/test_worker.py"
_OBSERVERS = "unit/observers/test_range_observers.py"
_FAILING = "unit/host/test_failing_observers.py"
_KILLING = "unit/host/test_killing_changes.py"
_KEYMAP = "unit/leases/test_keymap.py"
_DEATHS = "unit/leases/test_deaths.py"


@mutant(rule=8, kills="unit/observers/test_adapters.py unit/observers/test_adapters_threads.py")
def a_plain_observer_blocks_the_event_loop(m: Patch) -> None:
    async def run(_: _Adapted, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)

    m.patch(_Adapted, "_run", run)


@mutant(rule=8, kills="unit/host/test_worker_threads.py")
def threads_write_into_the_event_loop(m: Patch) -> None:
    def say(self: ObserverContext, change: Change, *, up_to: bool) -> None:
        (self._count_up_to if up_to else self._count)(change, self._number)

    m.patch(ObserverContext, "_say", say)


@mutant(rule=8, kills="unit/host/test_heartbeats.py::test_leases_are_renewed")
def nothing_renews_a_lease_while_the_observer_works(m: Patch) -> None:
    async def run(_: LeaseRenewer) -> None:
        await asyncio.Event().wait()

    m.patch(LeaseRenewer, "run", run)


@mutant(rule=8, kills="unit/observers/test_call_in_time.py")
def a_call_that_cannot_be_ended_is_taken_for_a_failed_one(m: Patch) -> None:
    old = call._end

    async def end(*running: Any) -> None:
        with suppress(ObserverStuck):
            await old(*running)

    m.patch(call, "_end", end)


@mutant(rule=8, kills="unit/host/test_trouble_in_leases.py")
def an_observer_that_makes_no_progress_goes_unseen(m: Patch) -> None:
    m.patch(CallWatch, "overdue", property(lambda _: None))


@mutant(rule=10, guarantee=30, kills=_KILLING)
def a_host_that_died_leaves_no_trace_in_its_leases(m: Patch) -> None:
    m.patch(Lease, "deaths_after", lambda lease, *_, **__: lease.deaths)


@mutant(rule=10, guarantee=31, kills=_KILLING)
def what_its_owners_died_of_is_delivered_like_all_else(m: Patch) -> None:
    died = Deaths.died
    m.patch(Deaths, "died", lambda self, cause, **_: died(self, read=0, cause=cause))


@mutant(rule=10, guarantee=32, kills=_KILLING)
def a_change_that_kills_is_given_to_the_next_owner(m: Patch) -> None:
    m.patch(Deaths, "blames", lambda *_: False)


@mutant(rule=10, guarantee=31, kills=_KILLING)
def a_change_comes_with_care_and_is_not_noted(m: Patch) -> None:
    m.patch(Deaths, "noting", lambda self, _: self)


@mutant(rule=10, guarantee=31, kills=_KILLING)
def a_try_that_fails_uses_up_care(m: Patch) -> None:
    old = Deaths.returned
    m.patch(Deaths, "returned", lambda self, _: old(self, 1))


@mutant(rule=10, guarantee=30, kills=_DEATHS)
def a_note_outlives_the_owner_that_lives(m: Patch) -> None:
    old = Lease.taken_by

    def taken_by(self: Lease, *by: Any, **deaths: Any) -> Lease:
        taken = old(self, *by, **deaths)
        return replace(taken, deaths=msgspec.structs.replace(taken.deaths, noted=3))

    m.patch(Lease, "taken_by", taken_by)


@mutant(rule=10, guarantee=30, kills=_KILLING)
def a_lease_of_a_start_that_died_is_given_up_as_if_it_had_ended_well(m: Patch) -> None:
    old = coordinator._given_up
    m.patch(coordinator, "_given_up", lambda x, living, _: old(x, living, x.deaths.released()))


@mutant(rule=10, kills=f"{_KILLING}::test_all_hosts_of_a_process")
def each_host_of_a_process_delivers_with_care_when_it_likes(m: Patch) -> None:
    old = CarefulDelivery.__init__

    def own_turn(self: CarefulDelivery, retrier: Any, _: asyncio.Lock) -> None:
        old(self, retrier, asyncio.Lock())

    m.patch(CarefulDelivery, "__init__", own_turn)


@mutant(rule=10, guarantee=30, kills=_DEATHS)
def a_steal_clears_a_suspect(m: Patch) -> None:
    old = Lease.taken_by

    def taken_by(
        self: Lease, host: HostName, incarnation: Incarnation, deaths: Deaths | None = None
    ) -> Lease:
        return old(self, host, incarnation, (deaths or self.deaths).cleared())

    m.patch(Lease, "taken_by", taken_by)


@mutant(rule=10, guarantee=32, kills=_DEATHS)
def three_dead_owners_are_enough_to_blame_a_change(m: Patch) -> None:
    m.patch(deaths, "BLAMED_AFTER", 3)


@mutant(rule=10, guarantee=32, kills=_DEATHS)
def a_fifth_owner_is_given_what_four_have_died_with(m: Patch) -> None:
    m.patch(deaths, "BLAMED_AFTER", 5)


@mutant(rule=10, guarantee=31, kills=_DEATHS)
def care_begins_with_the_third_death(m: Patch) -> None:
    m.patch(deaths, "CARE_FROM", 3)


@mutant(rule=10, guarantee=31, kills=_DEATHS)
def a_call_that_failed_clears_a_suspect(m: Patch) -> None:
    old = Deaths.returned

    def returned(self: Deaths, done: int) -> Deaths:
        return old(self.cleared() if self.noted == self.suspect else self, done)

    m.patch(Deaths, "returned", returned)


@mutant(rule=10, guarantee=31, kills=_DEATHS)
def a_suspect_is_forgotten_with_the_next_death(m: Patch) -> None:
    old = Deaths.died
    m.patch(Deaths, "died", lambda self, **told: old(replace(self, suspect=None), **told))


@mutant(rule=10, guarantee=31, kills=_KILLING)
def two_changes_are_delivered_with_care_at_once(m: Patch) -> None:
    old = CarefulDelivery.__init__

    def init(self: CarefulDelivery, retrier: Retrier, _: asyncio.Lock) -> None:
        old(self, retrier, cast("asyncio.Lock", asyncio.Semaphore(2)))

    m.patch(CarefulDelivery, "__init__", init)


@mutant(rule=10, guarantee=31, kills=_KILLING)
def what_was_delivered_with_care_is_not_stored_before_the_next(m: Patch) -> None:
    async def settle(self: CarefulDelivery, owned: OwnedLease, _: Checkpointer) -> None:
        owned.deaths = owned.deaths.returned(1)
        await self._tell(owned)

    m.patch(CarefulDelivery, "_settle", settle)


@mutant(rule=10, guarantee=31, kills=_KILLING)
def care_has_no_end(m: Patch) -> None:
    m.patch(CarefulDelivery, "caught_up", nothing)


@mutant(rule=9, kills=_KEYMAP)
def a_child_comes_before_all_that_held_its_keys_have_ended(m: Patch) -> None:
    m.patch(KeyMap, "_uncovered", lambda *_: ())


@mutant(rule=9, kills=_KEYMAP)
def a_lease_begins_beside_one_that_has_its_keys(m: Patch) -> None:
    m.patch(KeyMap, "readable", lambda self: self._open)


@mutant(rule=9, kills=_KEYMAP)
def a_child_comes_again_after_later_ranges_have_had_its_keys(m: Patch) -> None:
    m.patch(Segments, "latest_of", lambda *_: None)


@mutant(rule=9, kills=_KEYMAP)
def a_tombstone_goes_before_its_keys_are_read(m: Patch) -> None:
    m.patch(KeyMap, "finished", lambda self, _: [x for x, _ in self._ended])


@mutant(rule=9, kills=_WORKER)
def a_range_ends_and_goes_on_in_nothing(m: Patch) -> None:
    m.patch(Worker, "_ended", lambda _, lease: lease.ended_in(RangeEnd(children=())))


@mutant(rule=9, kills=f"{_FAILING}::test_poison")
def a_key_is_ready_while_an_observer_has_changes_of_it(m: Patch) -> None:
    def is_ready(self: KeyScheduler, name: str) -> bool:
        key = self._keys.get(name)
        return key is not None and bool(key.queue) and name not in self.waiting

    m.patch(KeyScheduler, "_is_ready", is_ready)


@mutant(rule=9, kills=_OBSERVERS)
def what_is_behind_a_change_that_failed_is_tried_before_it(m: Patch) -> None:
    old = KeyScheduler.put_back

    def put_back(self: KeyScheduler, change: Change) -> None:
        old(self, change)
        self._keys[change.key].queue.rotate(-1)

    m.patch(KeyScheduler, "put_back", put_back)


@mutant(rule=10, guarantee=22, kills=f"{_OBSERVERS}::test_an_outage")
def an_outage_is_taken_for_poison(m: Patch) -> None:
    m.patch(Judge, "_is_outage", lambda *_: False)


@mutant(rule=10, kills=f"{_FAILING}::test_poison")
def an_outage_counts_with_each_try(m: Patch) -> None:
    m.patch(Judge, "_counts", lambda _, why, __: _count(why))


def _count(why: Waiting) -> bool:
    why.failures += 1
    return why.failures > 4


@mutant(rule=10, kills=_OBSERVERS)
def what_cannot_be_put_aside_is_dropped(m: Patch) -> None:
    async def put(putting: Awaitable[Any]) -> None:
        with suppress(Exception):
            await putting

    m.patch(writer, "keep_cancellation", put)


@mutant(rule=10, kills="unit/observers/test_call.py")
def what_an_observer_raises_goes_through(m: Patch) -> None:
    async def process(
        self: CalledObserver, context: Context, changes: Sequence[Change]
    ) -> None:
        await self._observer.process(context, changes)

    m.patch(CalledObserver, "process", process)


@mutant(rule=10, kills="unit/host/test_pool.py")
def a_worker_fails_in_silence(m: Patch) -> None:
    old = WorkerPool.__init__

    def make(self: WorkerPool, *how: Any, **calls: Any) -> None:
        old(self, *how, **{**calls, "failed": lambda _: None})

    m.patch(WorkerPool, "__init__", make)


@mutant(rule=10, kills=_FAILING)
def a_range_that_is_to_wait_for_a_person_is_read_on(m: Patch) -> None:
    m.patch(Delivery, "_pause", lambda *_: CloseReason.FAILED)


@mutant(rule=11, guarantee=25, kills="unit/host/test_ranges_unknown.py")
def a_range_that_one_replica_does_not_know_is_given_up_at_once(m: Patch) -> None:
    m.patch(reader, "_UNKNOWN_FOR", 0.0)


@mutant(rule=11, guarantee=25, kills="unit/host/test_ranges_unknown.py")
def a_range_that_the_feed_does_not_have_is_asked_for_for_ever(m: Patch) -> None:
    m.patch(reader, "_UNKNOWN_FOR", inf)


@mutant(rule=11, kills=f"unit/host/test_embedding.py {_WORKER}")
def a_store_that_is_away_for_a_moment_ends_the_host(m: Patch) -> None:
    m.patch(failures, "Unavailable", FeedUnavailable)


@mutant(rule=11, kills="unit/host/test_lost_checkpoints.py::test_hosts_that_find_another")
def checkpoints_of_another_fleet_are_lost_ones(m: Patch) -> None:
    m.patch(coordinator, "refuse_other_checkpoints", lambda _: None)


@mutant(rule=11, kills="unit/host/test_decide.py")
def one_torn_listing_is_enough_to_create_and_delete_leases(m: Patch) -> None:
    m.patch(decide._Memory, "due", lambda *known: list(known[2]))


@mutant(rule=11, kills="unit/host/test_decide.py")
def a_lease_that_was_deleted_is_created_beside_its_owner(m: Patch) -> None:
    old = decide._Memory.due
    m.patch(decide._Memory, "due", lambda self, what, found, *_: old(self, what, found))


@mutant(rule=11, kills="unit/cli/test_exit_codes.py")
def what_a_person_must_mend_is_tried_again_by_the_supervisor(m: Patch) -> None:
    m.patch(exit_codes, "USER_ERROR", FAILED)


@mutant(rule=10, kills=_KILLING)
def others_use_up_the_care_that_a_suspect_needs(m: Patch) -> None:
    def returned(self: Deaths, done: int) -> Deaths:
        left = self.cleared() if self.noted == self.suspect else self
        return msgspec.structs.replace(left, noted=None, care=max(self.care - done, 0))

    m.patch(Deaths, "returned", returned)
