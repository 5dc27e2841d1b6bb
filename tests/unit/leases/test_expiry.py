from math import inf

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.fleet import ExpiryWatch, ListedAt
from changefeed.leases.lease import HostName, Incarnation, Lease, Version
from tests.support import make

R0 = RangeId("r0")
OWNED = make.lease().taken_by(HostName("a"), Incarnation("1"))


def watch() -> ExpiryWatch[RangeId]:
    return ExpiryWatch(30.0, max_clock_skew=300.0, shortest_watch=20.0)


def expired(
    seen: ExpiryWatch[RangeId], lease: Lease, at: float, *, later: float = 0, wall: float = 0
) -> bool:
    since = seen.still_since({R0: lease}, ListedAt(asked=at, answered=at + later, wall=wall))
    return since[R0] <= at - seen.expiration


def test_the_request_of_another_host_is_no_sign_of_life_of_the_owner() -> None:
    seen = watch()
    assert not expired(seen, OWNED, 0)
    asked_for = replace(OWNED, next_owner=HostName("b"), version=Version("another"))
    assert expired(seen, asked_for, 30)


def test_a_listing_that_was_long_under_way_makes_nobody_look_dead() -> None:
    seen = watch()
    assert not expired(seen, OWNED, 0, later=10)
    assert not expired(seen, OWNED, 39, later=461)
    assert expired(seen, OWNED, 40)


@pytest.mark.parametrize("expiration", [30.0, 60.0])  # when it is seen first
def test_a_stamp_far_older_than_any_clock_error_shortens_the_wait_to_two_renewals(
    expiration: float,
) -> None:
    seen, old = watch(), replace(OWNED, stamp=1_000.0)
    seen.judge_by(expiration, shortest_watch=expiration * 2 / 3)
    assert not expired(seen, old, 0, wall=1_400.0)
    seen.judge_by(30.0, shortest_watch=20.0)
    assert not expired(seen, old, 19.9, wall=1_419.9)
    assert expired(seen, old, 20, wall=1_420.0)


@pytest.mark.parametrize("shortest", [40.0, inf])
def test_no_stamp_counts_where_the_living_may_stand_still_as_long(shortest: float) -> None:
    seen = ExpiryWatch[RangeId](30.0, shortest_watch=shortest)
    for second, dead in ((0, False), (29.9, False), (30, True)):
        assert expired(seen, replace(OWNED, stamp=1.0), second, wall=9_000.0) is dead


def test_a_clock_that_is_far_ahead_takes_nothing_from_an_owner_that_renews() -> None:
    seen, lease = watch(), replace(OWNED, stamp=1_000.0)
    for second in range(0, 100, 5):
        if second % 10 == 0:
            lease = replace(lease.renewed(), stamp=1_000.0 + second)
        assert not expired(seen, lease, second, wall=9_000.0 + second)
