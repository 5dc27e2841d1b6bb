"""Breaks of many rules at the borders: the clock, Cosmos DB, threads, listings, SQLite."""

from dataclasses import replace
from math import inf
from typing import Any

from changefeed.feeds.cosmos import feed as cosmos
from changefeed.feeds.cosmos import positions
from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.requests import Requests
from changefeed.feeds.cosmos.topology import Place
from changefeed.feeds.feed import Position, RangeId
from changefeed.host import coordinator
from changefeed.host.coordinator import Coordinator
from changefeed.host.reader import IdleRanges
from changefeed.leases.fleet import Fleet, LeaseListing
from changefeed.leases.lease import Lease
from changefeed.leases.plan import Action
from changefeed.observers import call, one_thread
from changefeed.runtime import clock
from changefeed.stores.sqlite import transaction
from changefeed.stores.sqlite.file import SqliteFile

from .mutant import Patch, mutant, nothing

_RANGES = "integration/cosmos/test_feed_ranges.py::test"
_FAULTS = "integration/cosmos/test_feed_faults.py::test"
_LISTING = "unit/leases/test_listing.py"
_THREADS = "unit/observers/test_adapters_threads.py"
_IDLE = "unit/host/test_idle_ranges.py"
_SQLITE = "unit/stores/test_sqlite.py::test"


@mutant(rule=5, guarantee=2, kills="unit/runtime/test_clock.py")
def the_clock_of_fences_stands_while_the_machine_is_suspended(m: Patch) -> None:
    m.patch(clock, "_BOOTTIME", None)


@mutant(rule=13, guarantee=15, kills="unit/feeds/cosmos/test_positions.py")
def a_position_inside_a_transaction_says_too_late(m: Patch) -> None:
    at_its_end = positions._LAST
    old = positions.position_after
    m.patch(positions, "position_after", lambda sequence: old(sequence | at_its_end))


@mutant(rule=9, guarantee=16, kills="integration/cosmos/test_lagging_replicas.py")
def a_replica_that_lags_moves_a_reader_back(m: Patch) -> None:
    def stands(
        _: CosmosFeed, __: object, ___: object, ____: object, answer: Answer
    ) -> Position:
        return Position(answer.etag)

    m.patch(CosmosFeed, "_stands", stands)


@mutant(rule=11, guarantee=16, kills=f"{_FAULTS}_a_position_beyond_the_end")
def a_range_that_one_replica_has_not_caught_up_with_is_refused_at_once(m: Patch) -> None:
    m.patch(cosmos, "_REPLICA_LAG", 0.0)


@mutant(rule=9, guarantee=17, kills=f"{_RANGES}_a_feed_that_another_one_showed_the_split")
def a_question_may_go_to_another_range_than_was_meant(m: Patch) -> None:
    class AnyRange(str):
        __slots__ = ()

        def __ne__(self, _: object) -> bool:
            return False

        __hash__ = str.__hash__

    old = Requests.changes

    async def changes(self: Requests, place: Place, *page: Any, **how: Any) -> Answer | None:
        there = replace(place, physical=RangeId(AnyRange(place.physical)))
        return await old(self, there, *page, **how)

    m.patch(Requests, "changes", changes)


@mutant(rule=1, guarantee=19, kills=_LISTING)
def what_a_listing_does_not_show_is_never_looked_for(m: Patch) -> None:
    m.patch(LeaseListing, "_next_token", lambda self: self._token)


@mutant(rule=1, guarantee=19, kills=_LISTING)
def a_listing_with_a_wrong_count_is_believed(m: Patch) -> None:
    old = LeaseListing._takes_in
    m.patch(LeaseListing, "_takes_in", lambda *found, **how: old(*found, **how) or True)


@mutant(rule=8, guarantee=21, kills=_THREADS)
def a_cancelled_call_leaves_its_thread_behind(m: Patch) -> None:
    m.patch(one_thread, "_outlast", nothing)


@mutant(rule=13, guarantee=21, kills="unit/observers/test_call.py")
def a_call_that_had_returned_when_it_was_cancelled_is_not_done(m: Patch) -> None:
    m.patch(call, "_has_returned", lambda _: False)


@mutant(rule=8, guarantee=23, kills=_IDLE)
def a_range_at_rest_looks_for_itself_now_and_then(m: Patch) -> None:
    news = IdleRanges.news
    m.patch(IdleRanges, "news", lambda *known, **_: news(*known, at_rest=False))


@mutant(rule=13, guarantee=23, kills=_IDLE)
def a_range_rests_with_changes_that_are_not_done(m: Patch) -> None:
    news = IdleRanges.news
    m.patch(IdleRanges, "news", lambda *known, **_: news(*known, at_rest=True))


@mutant(rule=3, guarantee=24, kills="unit/host/test_heartbeats.py::test_a_host_that_takes_many")
def a_round_takes_as_long_as_its_steps(m: Patch) -> None:
    old = Coordinator._in_turn

    async def in_turn(self: Coordinator, step: tuple[Action, Lease], fleet: Fleet) -> None:
        self._round_ends = inf
        await old(self, step, fleet)

    m.patch(Coordinator, "_in_turn", in_turn)


@mutant(rule=3, guarantee=24, kills="unit/host/test_discovery.py::test_hosts_that_start")
def each_host_creates_all_leases(m: Patch) -> None:
    m.patch(coordinator, "_FIRST_BATCH", 10_000)


@mutant(rule=11, guarantee=26, kills=f"{_SQLITE}_a_file_that_was_deleted")
def hosts_go_on_in_a_file_that_is_no_longer_there(m: Patch) -> None:
    m.patch(SqliteFile, "_refuse_another_file", lambda _: None)


@mutant(rule=7, guarantee=26, kills=f"{_SQLITE}_changes_that_come_together")
def a_change_that_is_refused_leaves_half_of_itself_among_others(m: Patch) -> None:
    def by_itself(connection: Any, work: transaction.Work) -> Any:
        try:
            return work(connection)
        except Exception as error:  # noqa: BLE001 - as the unbroken code does
            return transaction.FailedChange(error)

    m.patch(transaction, "_by_itself", by_itself)
