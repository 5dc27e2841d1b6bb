"""What a host remembers of what it did, for those who look at it."""

from typing import Any

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.host.activity import Activity, Point
from changefeed.host.moves import Holding, LeaseMove, holdings, moves_between
from changefeed.leases.lease import HostName, Lease
from tests.support import make

R, S = RangeId("r"), RangeId("s")
ANNA, BEN = HostName("anna"), HostName("ben")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rates_and_a_point_of_the_hour_are_made_of_ten_seconds() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.done(R, 30)
    activity.done(S, 10)
    clock.now += 9
    activity.sample(5, 1.0)
    assert (activity.rates, list(activity.hour)) == ({}, [])
    clock.now += 1
    activity.sample(7, 2.5)
    assert activity.rates == {R: 3.0, S: 1.0}
    assert list(activity.hour) == [Point(at=1010.0, rate=4.0, lag=7, late=2.5)]
    clock.now += 10
    activity.sample(0, None)
    assert activity.rates == {}, "nothing was done since"


def test_a_clock_that_is_set_back_makes_no_rate_of_it() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.done(R, 100)
    clock.now -= 500
    activity.sample(0, None)
    assert (activity.rates, list(activity.hour)) == ({}, [])
    activity.done(R, 50)
    clock.now += 10
    activity.sample(0, None)
    assert activity.rates == {R: 5.0}


def test_a_range_is_known_from_its_acquisition_until_it_is_given_up() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.acquired(R, Continuation("5"))
    assert (activity.ranges[R].since, activity.ranges[R].position) == (1000.0, "5")
    assert activity.ranges[R].checkpoint_at is None
    clock.now += 3
    activity.checkpointed(R, Continuation("9"))
    known = activity.ranges[R]
    assert (known.since, known.position, known.checkpoint_at) == (1000.0, "9", 1003.0)
    activity.given_up(R)
    activity.checkpointed(R, Continuation("10"))  # its answer came late
    assert activity.ranges == {}


def test_moves_are_those_since_the_first_listing_and_the_newest_come_first() -> None:
    activity = Activity(Clock())
    lease = make.lease(R)
    activity.listed([lease], [])
    assert activity.moved == 0, "what was there before was not seen to move"
    for owner in (ANNA, BEN):
        lease = Lease(range=FeedRange(id=R), owner=owner)
        activity.listed([lease], [])
    assert [(x.kind, x.of, x.to) for x in activity.newest_moves(5)] == [
        ("moved", ANNA, BEN),
        ("acquired", None, ANNA),
    ]
    assert len(activity.newest_moves(1)) == 1
    assert activity.moved == 2


# What is seen to have moved between two looks


A = Holding("anna")
ASKED = Holding("anna", "ben")


def seen(before: Holding | None, after: Holding) -> list[dict[str, Any]]:
    old = {} if before is None else {"r": before}
    moves = moves_between(old, {"r": after}, at=7.0)
    assert all((x.at, x.range) == (7.0, "r") for x in moves)
    known = ("kind", "of", "to", "note")
    return [{k: v for k in known if (v := getattr(x, k)) is not None} for x in moves]


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (A, A, []),
        (None, Holding(), [{"kind": "created"}]),
        (None, A, [{"kind": "created"}, {"kind": "acquired", "to": "anna"}]),
        (Holding(), A, [{"kind": "acquired", "to": "anna"}]),
        (A, Holding(), [{"kind": "released", "of": "anna"}]),
        (A, Holding("ben"), [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (A, ASKED, [{"kind": "requested", "of": "anna", "to": "ben"}]),
        (ASKED, Holding("ben"), [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (ASKED, A, []),
        (A, Holding("anna", paused="disk"), [{"kind": "paused", "note": "disk"}]),
        (Holding(paused="disk"), Holding(), [{"kind": "resumed"}]),
        (A, Holding(ended=True), [{"kind": "ended", "of": "anna"}]),
    ],
)
def test_each_change_of_a_lease_is_one_move(
    before: Holding | None, after: Holding, moves: list[dict[str, Any]]
) -> None:
    assert seen(before, after) == moves


def test_a_lease_that_is_gone_is_no_move() -> None:
    assert moves_between({"r": A}, {}, at=0.0) == []


def test_leases_are_looked_at_by_what_people_see_of_them() -> None:
    lease = Lease(range=FeedRange(id=RangeId("r")), owner=HostName("anna"), paused="disk")
    assert holdings([lease]) == {"r": Holding("anna", None, "disk", False)}
    same = lease.renewed()
    assert moves_between(holdings([lease]), holdings([same]), at=0.0) == []
    assert moves_between(
        holdings([lease]), holdings([lease.ended_in(make.CLOSED)]), at=1.0
    ) == [LeaseMove(at=1.0, range="r", kind="ended", of="anna")]
