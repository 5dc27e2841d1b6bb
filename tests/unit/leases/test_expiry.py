from dataclasses import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.leases.lease import HostName, Incarnation, Lease, Version

R0 = RangeId("r0")
OWNED = Lease(range=FeedRange(id=R0)).taken_by(HostName("a"), Incarnation("1"))


def watch() -> ExpiryWatch[RangeId]:
    return ExpiryWatch(expiration=30.0, max_clock_skew=300.0)


def at(asked: float, *, answered: float | None = None, wall: float = 0.0) -> Moment:
    return Moment(asked=asked, answered=asked if answered is None else answered, wall=wall)


def test_what_stands_still_for_the_whole_expiration_is_expired() -> None:
    seen = watch()
    assert seen.expired({R0: OWNED}, at(0)) == set()
    assert seen.expired({R0: OWNED}, at(29.9)) == set()
    assert seen.expired({R0: OWNED}, at(30)) == {R0}


def test_a_renewal_begins_the_wait_anew() -> None:
    seen = watch()
    seen.expired({R0: OWNED}, at(0))
    seen.expired({R0: OWNED.renewed()}, at(20))
    assert seen.expired({R0: OWNED.renewed()}, at(49.9)) == set()
    assert seen.expired({R0: OWNED.renewed()}, at(50)) == {R0}


def test_the_request_of_another_host_is_no_sign_of_life_of_the_owner() -> None:
    seen = watch()
    seen.expired({R0: OWNED}, at(0))
    asked_for = replace(OWNED, next_owner=HostName("b"), version=Version("another"))
    assert seen.expired({R0: asked_for}, at(30)) == {R0}


def test_a_listing_that_was_long_under_way_makes_nobody_look_dead() -> None:
    seen = watch()
    seen.expired({R0: OWNED}, at(0, answered=10))
    assert seen.expired({R0: OWNED}, at(39, answered=500)) == set()
    assert seen.expired({R0: OWNED}, at(40)) == {R0}


def test_a_stamp_far_older_than_any_clock_error_needs_no_waiting() -> None:
    fresh = replace(OWNED, stamp=1_000.0)
    assert watch().expired({R0: fresh}, at(0, wall=1_329.9)) == set()
    assert watch().expired({R0: fresh}, at(0, wall=1_330.0)) == {R0}


def test_a_clock_that_lags_behind_delays_nothing() -> None:
    seen, from_the_future = watch(), replace(OWNED, stamp=9_999.0)
    seen.expired({R0: from_the_future}, at(0))
    assert seen.expired({R0: from_the_future}, at(30)) == {R0}


def test_the_watch_tells_when_to_look_again() -> None:
    seen = watch()
    assert seen.next_expiry() is None
    seen.expired({R0: OWNED}, at(7))
    assert seen.next_expiry() == 37
    seen.expired({R0: OWNED}, at(37))
    assert seen.next_expiry() is None  # it has expired; there is nothing left to wait for
