"""What one host makes of what it listed. Times are of its own clock; nothing here waits."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.balancing.balancer import (
    Balancer,
    Listing,
    Steal,
    View,
    actions,
)
from changefeed.host.settings import LeaseSettings
from changefeed.leases.expiry import Moment
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.plan import Action

ME, B, C = HostName("a"), HostName("b"), HostName("c")


def balancer(*, rebalance_delay: float = 5, **settings: Any) -> Balancer:
    """Expiration 30 s, quiet 5 s, handoffs of 30 s at the most, unless told otherwise."""
    leases = LeaseSettings.model_validate(settings)
    return Balancer(ME, leases.with_timing(rebalance_delay=rebalance_delay))


def lease(n: int, owner: HostName | None = None) -> Lease:
    made = Lease(range=FeedRange(id=RangeId(f"r{n}")))
    return made if owner is None else made.taken_by(owner, Incarnation(f"{owner}-1"))


def member(name: HostName, *, beats: int = 0, stopping: bool = False) -> Member:
    return Member(
        name=name, incarnation=Incarnation(f"{name}-1"), heartbeats=beats, stopping=stopping
    )


def view(
    mine: Balancer,
    leases: Sequence[Lease],
    members: Sequence[Member],
    at: float,
    owned: Collection[str] = (),
) -> View:
    listing = Listing(
        leases=leases, readable=leases, members=members, reading=[RangeId(x) for x in owned]
    )
    return mine.observe(listing, Moment(asked=at, answered=at, wall=0.0))


def to_do(
    mine: Balancer,
    leases: Sequence[Lease],
    members: Sequence[Member],
    at: float,
    owned: Collection[str] = (),
) -> list[tuple[Action, str]]:
    found = actions(view(mine, leases, members, at, owned))
    return [(action, x.range_id) for action, x in found]


def test_a_host_that_stops_is_given_nothing_and_its_leases_are_asked_for() -> None:
    mine = balancer(rebalance_delay=0)
    leases = [lease(0), lease(1), lease(2, B)]
    members = [member(ME), member(B, stopping=True)]
    assert to_do(mine, leases, members, 0) == [(Action.ACQUIRE, "r0"), (Action.ACQUIRE, "r1")]
    assert mine.fleet == {ME}


def test_a_steal_waits_until_membership_has_been_quiet_for_long_enough() -> None:
    mine = balancer()
    leases = [lease(0, B), lease(1, B)]
    both = [member(ME), member(B)]
    assert to_do(mine, leases, both, 0) == []
    assert to_do(mine, leases, both, 4.9) == []
    assert to_do(mine, leases, both, 5) == [(Action.STEAL, "r1")]


def test_whoever_comes_or_goes_begins_the_quiet_anew() -> None:
    mine = balancer()
    leases = [lease(n, B) for n in range(6)]
    to_do(mine, leases, [member(ME), member(B)], 0)
    three = [member(ME), member(B), member(C)]
    assert to_do(mine, leases, three, 4) == []
    assert to_do(mine, leases, three, 8.9) == []
    assert {x for x, _ in to_do(mine, leases, three, 9)} == {Action.STEAL}


def test_what_has_expired_is_taken_over_however_restless_membership_is() -> None:
    mine = balancer(rebalance_delay=1000)
    dead = [lease(0, B), lease(1, B)]
    assert to_do(mine, dead, [member(ME), member(C)], 0) == []
    found = to_do(mine, dead, [member(ME), member(C, beats=1)], 30)
    assert [x for x, _ in found] == [Action.ACQUIRE_EXPIRED]


def test_a_dead_host_is_given_nothing_though_its_record_is_there() -> None:
    mine = balancer()
    both = [member(ME), member(B)]
    assert to_do(mine, [lease(0), lease(1)], both, 0) == [(Action.ACQUIRE, "r0")]
    found = to_do(mine, [lease(0), lease(1)], [member(ME, beats=6), member(B)], 30)
    assert found == [(Action.ACQUIRE, "r0"), (Action.ACQUIRE, "r1")]


def forgotten(found: View) -> Sequence[HostName]:
    return [x.name for x in found.listed.forgotten]


def test_a_record_is_forgotten_when_its_host_is_dead_and_owns_nothing_any_more() -> None:
    mine = balancer()
    leases, members = [lease(0, B)], [member(ME), member(B), member(C)]
    assert forgotten(view(mine, leases, members, 0)) == []
    members = [replace(x, heartbeats=1) if x.name == ME else x for x in members]
    assert forgotten(view(mine, leases, members, 30)) == [C]
    assert forgotten(view(mine, [], members, 30)) == [B, C]


# Steals


def seen(mine: Balancer, stolen: Lease, at: float) -> None:
    """Let it list two leases of a living owner, one of which is ours to steal."""
    members = [member(ME, beats=int(at)), member(B, beats=int(at))]
    to_do(mine, [lease(0, B), stolen], members, at)


def test_an_owner_is_asked_and_has_its_time_and_an_expiration_and_is_then_robbed() -> None:
    mine, theirs = balancer(), lease(1, B)
    seen(mine, theirs, 0)
    assert mine.steal(theirs, now=10) is Steal.REQUEST
    asked = theirs.asked_by(ME)
    assert mine.steal(asked, now=11) is Steal.WAIT
    assert mine.steal(asked, now=11 + 60 - 0.1) is Steal.WAIT
    assert mine.steal(asked, now=11 + 60) is Steal.TAKE


def test_a_request_that_another_write_has_wiped_out_is_made_again() -> None:
    mine, theirs = balancer(), lease(1, B)
    seen(mine, theirs, 0)
    assert mine.steal(theirs, now=10) is Steal.REQUEST
    assert mine.steal(theirs.asked_by(ME), now=11) is Steal.WAIT
    assert mine.steal(theirs.asked_by(C), now=50) is Steal.REQUEST
    assert mine.steal(theirs.asked_by(ME), now=51) is Steal.WAIT
    assert mine.steal(theirs.asked_by(ME), now=11 + 60) is Steal.WAIT
    assert mine.steal(theirs.asked_by(ME), now=51 + 60) is Steal.TAKE


def test_a_new_epoch_of_the_same_owner_has_all_the_time_again() -> None:
    mine, theirs = balancer(), lease(1, B)
    seen(mine, theirs, 0)
    mine.steal(theirs.asked_by(ME), now=10)
    again = theirs.taken_by(B, Incarnation("b-2")).asked_by(ME)
    assert mine.steal(again, now=50) is Steal.WAIT
    assert mine.steal(again, now=71) is Steal.WAIT
    assert mine.steal(again, now=50 + 60) is Steal.TAKE


def test_the_time_of_a_steal_begins_anew_for_a_host_that_was_away_for_long() -> None:
    mine = balancer(rebalance_delay=0)
    asked_for = lease(1, B).asked_by(ME)
    seen(mine, asked_for, 0)
    assert mine.steal(asked_for, now=0) is Steal.WAIT
    seen(mine, asked_for.renewed(), 60)  # nothing in between: we may have seemed dead
    assert mine.steal(asked_for, now=60) is Steal.WAIT
    for at in range(70, 120, 10):
        asked_for = asked_for.renewed()
        seen(mine, asked_for, at)
        assert mine.steal(asked_for, now=at) is Steal.WAIT
    seen(mine, asked_for.renewed(), 120)
    assert mine.steal(asked_for, now=120) is Steal.TAKE


def test_without_time_for_handoffs_a_lease_is_taken_at_once() -> None:
    mine, theirs = balancer(max_handoff_time=0), lease(1, B)
    seen(mine, theirs, 0)
    assert mine.steal(theirs, now=0) is Steal.TAKE


def test_a_host_of_another_kind_counts_as_long_as_its_leases_move() -> None:
    mine, only_me = balancer(rebalance_delay=0), [member(ME)]
    theirs = [replace(lease(n), owner=B, renewals=1) for n in range(2)]
    assert to_do(mine, theirs, only_me, 0) == [(Action.STEAL, "r1")]
    assert mine.fleet == {ME, B}
    assert mine.steal(theirs[1], now=0) is Steal.TAKE


def test_a_host_that_a_torn_listing_leaves_out_is_still_asked_first() -> None:
    mine = balancer(rebalance_delay=0)
    theirs = [lease(0, B), lease(1, B)]
    assert to_do(mine, theirs, [member(ME)], 0) == [(Action.STEAL, "r1")]
    assert mine.steal(theirs[1], now=0) is Steal.REQUEST


# When to look again


def test_what_a_host_of_another_kind_takes_back_is_left_alone_for_twice_as_long() -> None:
    mine, theirs, now = balancer(), of_b(0, None), 0.0
    view(mine, [theirs], [], now)
    at: list[float] = []
    for _ in range(7):
        while mine.steal(theirs, now=now) is Steal.WAIT:
            now += 1
        mine.stolen(theirs, now=now)
        at.append(now)
    assert [y - x for x, y in pairwise(at)] == [10, 20, 40, 80, 80, 80]
    assert mine.steal(lease(0, B), now=now) is Steal.REQUEST  # a host of ours has it by now
    view(mine, [], [], now + 160)
    mine.stolen(theirs, now=now + 160)
    assert mine.steal(theirs, now=now + 170) is Steal.TAKE


def test_the_next_look_is_after_an_interval_or_when_something_would_expire() -> None:
    mine = balancer()
    to_do(mine, [lease(0, B)], [member(ME), member(B)], 0)
    assert mine.next_listing(now=0, jitter=1.1) == 5.5
    assert mine.next_listing(now=27, jitter=1.1) == 3
    assert mine.next_listing(now=30, jitter=1.1) == 0.05  # never at full speed


def test_the_next_look_is_soon_while_leases_are_about_to_change_hands() -> None:
    mine = balancer()
    leases = [lease(0, B), lease(1, B)]
    to_do(mine, leases, [member(ME), member(B)], 0)
    assert mine.next_listing(now=0, jitter=1.0) == 0.5


# By load


def by_load(name: HostName, **said: object) -> Member:
    settings = {"leases.balance": "load", **said}
    return replace(member(name), settings=json.dumps(settings))


HOT = [lease(n, B).with_load(0.5, moved=False) for n in range(2)]
COLD = [lease(n, ME).with_load(0.0, moved=False) for n in range(2, 4)]


def test_a_fleet_that_balances_by_load_moves_work_where_numbers_are_even() -> None:
    mine = balancer(rebalance_delay=0, balance="load")
    found = to_do(mine, [*HOT, *COLD], [by_load(ME), by_load(B)], 0, ["r2", "r3"])
    assert found == [(Action.STEAL, "r0")]


def test_no_range_is_split_before_the_fleet_has_been_quiet_for_a_while() -> None:
    mine = balancer(rebalance_delay=5, balance="load", split_hot=True)
    whole = FeedRange(id=RangeId("r0"), low="0", high="8")
    hot = [replace(lease(0, ME), range=whole, load=1.0)]
    members = [by_load(x, **{"leases.split_hot": True}) for x in (ME, B)]

    def to_split(at: float) -> Mapping[RangeId, int]:
        listing = Listing(
            leases=hot, readable=hot, members=members, reading=[whole.id], ranges=[whole]
        )
        return mine.observe(listing, Moment(asked=at, answered=at, wall=0.0)).to_split

    assert to_split(0) == {}
    assert to_split(4) == {}
    assert to_split(5) == {"r0": 2}
    members.append(by_load(C, **{"leases.split_hot": True}))
    assert to_split(6) == {}


@pytest.mark.parametrize(
    "other",
    [
        member(B),
        replace(member(B), settings='{"leases.balance": "count"}'),
        replace(member(B), settings="no JSON"),
        replace(member(B), settings='{"leases.balance": ["load"]}'),
        replace(member(B), settings='{"leases.balance": "load", "leases.capacity": 1e999}'),
    ],
    ids=["says nothing", "count", "unreadable", "of another form", "beyond numbers"],
)
def test_one_host_that_balances_by_count_makes_all_do_so(other: Member) -> None:
    mine = balancer(rebalance_delay=0, balance="load")
    assert to_do(mine, [*HOT, *COLD], [by_load(ME), other], 0, ["r2", "r3"]) == []
    counting = balancer(rebalance_delay=0)
    both = [by_load(ME), by_load(B)]
    assert to_do(counting, [*HOT, *COLD], both, 0, ["r2", "r3"]) == []


def test_a_torn_listing_without_the_record_of_a_host_does_not_change_the_way() -> None:
    mine = balancer(rebalance_delay=0, balance="load")
    asked = [(Action.STEAL, "r0")]
    both = [by_load(ME), by_load(B)]
    assert to_do(mine, [*HOT, *COLD], both, 0, ["r2", "r3"]) == asked
    assert to_do(mine, [*HOT, *COLD], both[:1], 1, ["r2", "r3"]) == asked
    assert to_do(mine, [*HOT, *COLD], both[1:], 2, ["r2", "r3"]) == asked


@pytest.mark.parametrize("capacity", [0, -1, 1e-9, 1e9])
def test_a_capacity_that_no_setting_allows_is_that_of_any_host(capacity: float) -> None:
    mine = balancer(rebalance_delay=0, balance="load")
    text = json.dumps({"leases.balance": "load", "leases.capacity": capacity})
    odd = replace(member(B), settings=text)
    found = to_do(mine, [*HOT, *COLD], [by_load(ME), odd], 0, ["r2", "r3"])
    assert found == [(Action.STEAL, "r0")]


def test_capacities_and_most_ranges_are_what_member_records_say() -> None:
    strong = by_load(B, **{"leases.capacity": 3.0})
    mine = balancer(rebalance_delay=0, balance="load")
    assert to_do(mine, [*HOT, *COLD], [by_load(ME), strong], 0, ["r2", "r3"]) == []
    full = by_load(ME, **{"leases.max_ranges": 2})
    mine = balancer(rebalance_delay=0, balance="load")
    assert to_do(mine, [*HOT, *COLD], [full, by_load(B)], 0, ["r2", "r3"]) == []


def of_b(n: int, incarnation: Incarnation | None) -> Lease:
    return replace(lease(n, B), incarnation=incarnation)
