"""What one host makes of what it listed. Times are of its own clock; nothing here waits."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.decide import Decision, FeedRanges, HostView, decide
from changefeed.host.settings import LeaseSettings
from changefeed.leases.fleet import FleetWatch, ListedAt
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, RangeEnd
from changefeed.leases.plan import Action
from changefeed.leases.timing import FleetRules, Timing
from tests.support import make

ME, B, C = HostName("a"), HostName("b"), HostName("c")


class Mind:
    """One host, from one listing to the next; ``decision`` is what it decided last.

    Expiration 30 s, quiet 5 s, handoffs of 30 s at the most, unless told otherwise.
    """

    decision: Decision

    def __init__(
        self, ranges: FeedRanges | None = None, *, rebalance_delay: float = 5, **settings: Any
    ) -> None:
        leases = LeaseSettings.model_validate(settings)
        own = leases.with_timing(rebalance_delay=rebalance_delay).timing
        rules = FleetRules(own, leases.balance, lambda: 0.0)
        self._decide = partial(decide, rules=rules, handoff=leases.max_handoff_time)
        self.ranges = ranges or FeedRanges()
        self.own = HostView(name=ME)
        self.keymap = KeyMap(())
        self._watch = FleetWatch(Timing.of(30.0), me=ME)

    def look(
        self,
        leases: Sequence[Lease],
        members: Sequence[Member],
        at: float,
        owned: Collection[str] = (),
        root: RangeEnd | None = None,
    ) -> Decision:
        self.fleet = self._watch.take(
            leases, members, ListedAt(asked=at, answered=at, wall=0.0)
        )
        own = dataclasses.replace(self.own, reading={RangeId(x) for x in owned})
        self.keymap = KeyMap(
            leases, root=root, ranges=self.ranges.listed, begun=self.keymap.begun
        )
        self.decision = self._decide(self.fleet, self.keymap, own, self.ranges)
        self.own = self.decision.own
        return self.decision


balancer = Mind


def lease(n: int, owner: HostName | None = None) -> Lease:
    made = make.lease(f"r{n}", epoch=1)
    return made if owner is None else made.taken_by(owner, Incarnation(f"{owner}-1"))


def member(name: HostName, *, beats: int = 0, stopping: bool = False) -> Member:
    return make.member(name, heartbeats=beats, stopping=stopping)


def to_do(
    mine: Mind,
    leases: Sequence[Lease],
    members: Sequence[Member],
    at: float,
    owned: Collection[str] = (),
) -> list[tuple[Action, str]]:
    found = mine.look(leases, members, at, owned).steps
    return [(action, x.range_id) for action, x in found]


def test_a_host_that_stops_is_given_nothing_and_its_leases_are_asked_for() -> None:
    mine = balancer(rebalance_delay=0)
    leases = [lease(0), lease(1), lease(2, B)]
    members = [member(ME), member(B, stopping=True)]
    assert to_do(mine, leases, members, 0) == [(Action.ACQUIRE, "r0"), (Action.ACQUIRE, "r1")]
    assert mine.fleet.alive == {ME}


def test_a_steal_waits_until_membership_has_been_quiet_for_long_enough() -> None:
    mine = balancer()
    leases = [lease(0, B), lease(1, B)]
    both = [member(ME), member(B)]
    assert to_do(mine, leases, both, 0) == []
    assert to_do(mine, leases, both, 4.9) == []
    assert to_do(mine, leases, both, 5) == [(Action.STEAL, "r1")]


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


def test_a_record_is_forgotten_when_its_host_is_dead_and_owns_nothing_any_more() -> None:
    mine = balancer()
    leases, members = [lease(0, B)], [member(ME), member(B), member(C)]
    mine.look(leases, members, 0)
    assert list(mine.fleet.forgotten) == []
    members = [replace(x, heartbeats=1) if x.name == ME else x for x in members]
    mine.look(leases, members, 30)
    assert [x.name for x in mine.fleet.forgotten] == [C]
    mine.look([], members, 30)
    assert [x.name for x in mine.fleet.forgotten] == [B, C]


# Steals


OTHERS = [lease(0, B)]


def steal(mine: Mind, theirs: Lease, at: float) -> Action | None:
    """Let it list two leases of a living owner, one of which is ours to steal."""
    members = [member(ME, beats=int(at)), member(B, beats=int(at))]
    found = mine.look([*OTHERS, theirs], members, at)
    assert [x.range_id for _, x in found.steps] in ([], [theirs.range_id])
    return found.steps[0][0] if found.steps else None


def steals(mine: Mind, theirs: Lease, *moments: float) -> list[Action | None]:
    """Let it list so every ten seconds: who is away for longer may have seemed dead."""
    return [steal(mine, theirs, at) for at in moments]


def asked_from(start: float, to: float) -> Iterator[float]:
    while start < to:
        yield start
        start += 10


def test_an_owner_is_asked_and_has_its_time_and_an_expiration_and_is_then_robbed() -> None:
    mine, theirs = balancer(rebalance_delay=0), lease(1, B)
    assert steal(mine, theirs, 10) is Action.STEAL
    asked = theirs.requested_by(ME)
    assert set(steals(mine, asked, *asked_from(11, 71), 71 - 0.1)) == {None}
    assert steal(mine, asked, 71) is Action.ROB


def test_a_request_that_another_write_has_wiped_out_is_made_again() -> None:
    mine, theirs = balancer(rebalance_delay=0), lease(1, B)
    assert steal(mine, theirs, 10) is Action.STEAL
    assert set(steals(mine, theirs.requested_by(ME), *asked_from(11, 50))) == {None}
    assert steal(mine, theirs.requested_by(C), 50) is Action.STEAL
    assert set(steals(mine, theirs.requested_by(ME), *asked_from(51, 111))) == {None}
    assert steal(mine, theirs.requested_by(ME), 51 + 60) is Action.ROB


def test_a_new_epoch_of_the_same_owner_has_all_the_time_again() -> None:
    mine, theirs = balancer(rebalance_delay=0), lease(1, B)
    assert set(steals(mine, theirs.requested_by(ME), *asked_from(10, 50))) == {None}
    again = theirs.taken_by(B, Incarnation("b-1")).requested_by(ME)
    assert set(steals(mine, again, *asked_from(50, 110))) == {None}
    assert steal(mine, again, 50 + 60) is Action.ROB


def test_the_time_of_a_steal_begins_anew_for_a_host_that_was_away_for_long() -> None:
    mine = balancer(rebalance_delay=0)
    asked_for = lease(1, B).requested_by(ME)
    assert steal(mine, asked_for, 0) is None
    assert set(steals(mine, asked_for, *asked_from(60, 120))) == {None}  # away until 60
    assert steal(mine, asked_for, 120) is Action.ROB


def test_without_time_for_handoffs_a_lease_is_taken_at_once() -> None:
    mine, theirs = balancer(max_handoff_time=0, rebalance_delay=0), lease(1, B)
    assert steal(mine, theirs, 0) is Action.ROB


def test_a_host_of_another_kind_counts_as_long_as_its_leases_move() -> None:
    mine, only_me = balancer(rebalance_delay=0), [member(ME)]
    theirs = [replace(lease(n), owner=B, renewals=1) for n in range(2)]
    assert to_do(mine, theirs, only_me, 0) == [(Action.ROB, "r1")]
    assert mine.fleet.alive == {ME, B}


def test_what_a_host_of_another_kind_takes_back_is_left_alone_for_twice_as_long() -> None:
    mine, now = balancer(rebalance_delay=0), 0
    at: list[float] = []
    while len(at) < 7:
        theirs = [replace(of_b(n), renewals=now) for n in range(2)]
        if mine.look(theirs, [member(ME, beats=now)], now).steps:
            mine.own = mine.own.with_steal(theirs[1], mine.fleet, now=now)
            at.append(now)
        now += 1
    assert [y - x for x, y in pairwise(at)] == [10, 20, 40, 80, 80, 80]
    assert mine.own.taken.keys() == {"r1"}
    assert steal(mine, lease(1, B), now) is Action.STEAL  # a host of ours has it by now
    mine.look([], [member(ME, beats=now)], now + 160)
    assert not mine.own.taken


# When to look again


def test_the_next_look_is_after_an_interval_or_when_something_would_expire() -> None:
    mine = balancer()
    to_do(mine, [lease(0, B)], [member(ME), member(B)], 0)
    assert mine.decision.wait(now=0, jitter=1.1) == 5.5
    assert mine.decision.wait(now=27, jitter=1.1) == 3
    assert mine.decision.wait(now=30, jitter=1.1) == 0.05  # never at full speed
    to_do(mine, [lease(0, B)], [member(ME), member(B)], 30)
    assert mine.decision.wait(now=30, jitter=1.1) == 5.5  # what is dead does not expire again


# By load


HOT = [lease(n, B).with_load(0.5, cooling=False) for n in range(2)]
COLD = [lease(n, ME).with_load(0.0, cooling=False) for n in range(2, 4)]


def test_no_range_is_split_before_the_fleet_has_been_quiet_for_a_while() -> None:
    whole = FeedRange(id=RangeId("r0"), low="0", high="8")
    feed = FeedRanges(listed=[whole], asked=0.0)
    mine = balancer(feed, rebalance_delay=5, balance="split")
    hot = [replace(lease(0, ME), range=whole, load=1.0)]
    members = [member(ME), member(B)]

    def to_split(at: float) -> Mapping[RangeId, int]:
        return mine.look(hot, members, at, ["r0"]).splits

    assert to_split(0) == {}
    assert to_split(4) == {}
    assert to_split(5) == {"r0": 2}
    members.append(member(C))
    assert to_split(6) == {}


def test_a_torn_listing_without_the_record_of_a_host_does_not_change_the_way() -> None:
    mine = balancer(rebalance_delay=0, balance="load")
    asked = [(Action.STEAL, "r0")]
    both = [member(ME), member(B)]
    assert to_do(mine, [*HOT, *COLD], both, 0, ["r2", "r3"]) == asked
    assert to_do(mine, [*HOT, *COLD], both[:1], 1, ["r2", "r3"]) == asked
    assert to_do(mine, [*HOT, *COLD], both[1:], 2, ["r2", "r3"]) == asked


def test_beside_a_processor_of_another_kind_ranges_are_shared_by_number() -> None:
    theirs = [replace(x, incarnation=None) for x in HOT]
    mine = balancer(rebalance_delay=0, balance="load")
    assert to_do(mine, [*theirs, *COLD], [member(ME)], 0, ["r2", "r3"]) == []


def test_a_host_has_no_more_ranges_than_its_record_says() -> None:
    full = replace(member(ME), max_ranges=2)
    mine = balancer(rebalance_delay=0, balance="load")
    assert to_do(mine, [*HOT, *COLD], [full, member(B)], 0, ["r2", "r3"]) == []


def of_b(n: int) -> Lease:
    return replace(lease(n, B), incarnation=None, cooling=False)


# What is to come, and what is over


WHOLE = make.feed_range("w", "0", "8")
LOW = make.feed_range("low", "0", "4", generation=(1, 0))
HIGH = make.feed_range("high", "4", "8", generation=(1, 0))
ENDED = make.lease(WHOLE, epoch=1, end=make.end(LOW, HIGH))
READ = [make.lease(x, "b", renewals=1) for x in (LOW, HIGH)]
FEED = FeedRanges(listed=[LOW, HIGH], asked=0.0)


def wants(found: Decision) -> tuple[set[str], set[str], set[str]]:
    """Return what it creates, and what it deletes."""
    return (
        {x.child.range.id for x in found.new_leases},
        {x.range_id for x in found.gaps},
        {x.range_id for x, _ in found.deletes},
    )


NOTHING = (set[str](), set[str](), set[str]())


def test_children_are_created_when_two_listings_in_a_row_want_them() -> None:
    mine = Mind(FEED)
    first = mine.look([ENDED], [], 0)
    assert (wants(first), first.again) == (NOTHING, True)
    assert wants(mine.look([ENDED, *READ], [], 1)) == NOTHING
    mine.look([ENDED], [], 2)
    # They were read: they are left to their owner for an expiration.
    assert wants(mine.look([ENDED], [], 31)) == NOTHING
    assert wants(mine.look([ENDED], [], 32))[0] == {"low", "high"}
    fresh = Mind(FEED)
    fresh.look([ENDED], [], 0)
    assert wants(fresh.look([ENDED], [], 1))[0] == {"low", "high"}


def test_nothing_is_created_before_the_feed_was_asked() -> None:
    mine = Mind()
    assert [wants(mine.look([ENDED], [], at)) for at in range(3)] == [NOTHING] * 3


def test_keys_of_a_deleted_lease_are_left_to_its_owner_under_whatever_name() -> None:
    root = make.end(WHOLE)
    mine = Mind(FEED)
    mine.look(READ, [], 0, root=root)
    for at in (1, 2, 30):  # the tombstone is gone, so only the root knows of the keys
        assert wants(mine.look([], [], at, root=root)) == NOTHING
    assert wants(mine.look([], [], 31, root=root))[0] == {"w"}
    mine = Mind(FEED)
    mine.look(READ, [], 0, root=root)
    mine.look([], [], 1, root=root)
    assert wants(mine.look(READ, [], 2, root=root)) == NOTHING


def test_a_tombstone_is_deleted_once_the_feed_was_asked_since_it_was_seen_to_be_over() -> None:
    mine = Mind(FEED)
    mine.look([ENDED, *READ], [], 5)
    assert wants(mine.look([ENDED, *READ], [], 10)) == NOTHING
    mine.ranges = dataclasses.replace(FEED, asked=7.0)
    assert wants(mine.look([ENDED, *READ], [], 15))[2] == {"w"}


def test_keys_without_a_lease_are_left_alone_for_an_expiration_and_then_looked_for() -> None:
    mine = Mind(FEED)
    mine.look(READ, [], 0)
    mine.look(READ[:1], [], 5)
    found = mine.look(READ[:1], [], 10)
    assert wants(found) == NOTHING
    assert 35 in found.moments
    assert wants(mine.look(READ[:1], [], 35))[1] == {"high"}
    assert wants(mine.look(READ, [], 40)) == NOTHING
    mine.look(READ[:1], [], 50)
    assert wants(mine.look(READ[:1], [], 79)) == NOTHING  # it was there again


def test_a_lease_that_nobody_has_owned_is_acquired_when_two_listings_show_it() -> None:
    mine = Mind(FEED)
    new = [make.lease(LOW), make.lease(HIGH)]
    first = mine.look(new, [member(ME)], 0)
    assert (first.steps, first.again) == ([], True)
    second = mine.look(new, [member(ME)], 1)
    assert ([x for x, _ in second.steps], second.again) == ([Action.ACQUIRE] * 2, False)


def test_a_fleet_begins_where_two_listings_in_a_row_show_no_lease() -> None:
    mine = Mind(FEED)
    first = mine.look([], [], 0)
    assert (first.begins, first.again) == (False, True)
    assert not mine.look(READ, [], 1).begins
    mine.look([], [], 2)
    assert mine.look([], [], 3).begins


TORN = st.lists(st.sets(st.sampled_from(["w", "low", "high"])), min_size=2, max_size=8)


@given(TORN)
def test_what_one_listing_in_two_lacks_is_neither_created_nor_deleted_nor_begun(
    torn: Sequence[Collection[str]],
) -> None:
    mine, every = Mind(FEED), [ENDED, *READ]
    for n, lacks in enumerate(torn):
        for listed in ([x for x in every if x.range_id not in lacks], every):
            found = mine.look(listed, [], n * 0.1)
            assert (found.new_leases, found.gaps, found.begins) == ([], [], False)
            assert all(x.range_id == "w" for x, _ in found.deletes)


@given(TORN, st.randoms())
def test_a_decision_depends_on_no_order_of_the_listing(
    torn: Sequence[Collection[str]], random: Any
) -> None:
    one, other = Mind(FEED), Mind(FEED)
    for n, lacks in enumerate(torn):
        listed = [x for x in [ENDED, *READ] if x.range_id not in lacks]
        shuffled = random.sample(listed, len(listed))
        ours, theirs = one.look(listed, [], n * 9.0), other.look(shuffled, [], n * 9.0)
        assert (ours.steps, wants(ours)) == (theirs.steps, wants(theirs))
        assert ours.own == theirs.own
