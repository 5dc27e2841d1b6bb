"""Leases of other processors, fitted to the ranges that a feed has."""

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange
from changefeed.leases.cosmos.foreign import imported, may_be_alive, moved
from changefeed.leases.lease import HostName, Lease
from tests.support import make

MIDDLE = "1FFFFFFFFFFFFFFF"
LOWER = make.feed_range("1", high=MIDDLE, parents="0")
UPPER = make.feed_range("2", MIDDLE, "FF", parents="0")


def foreign(name: str, low: str = "", high: str = "", position: str | None = '"7"') -> Lease:
    found = make.feed_range(name, low, high)
    return make.lease(found, "java-1", at=position, epoch=0, stamp=100.0)


def ranges_of(*found: Lease) -> list[FeedRange]:
    return [x.range for x in imported(found, [LOWER, UPPER])]


def test_a_lease_of_a_range_that_the_feed_has_gets_its_bounds_and_parents() -> None:
    assert ranges_of(foreign("1"), foreign("2")) == [LOWER, UPPER]


def test_a_lease_that_is_named_by_the_bounds_of_a_range_becomes_the_lease_of_that() -> None:
    assert ranges_of(foreign(f"-{MIDDLE}", "", MIDDLE)) == [LOWER]


def test_parts_and_ranges_that_are_gone_stay_what_they_are() -> None:
    part, gone = foreign("3F-FF", "3F", "FF"), foreign("0", "", "FF")
    assert ranges_of(part, gone) == [part.range, gone.range]


def test_a_range_that_was_never_read_starts_where_the_settings_say() -> None:
    assert ranges_of(foreign("1", position=None), foreign("2")) == [UPPER]
    (lease,) = imported([foreign("2")], [UPPER])
    assert (lease.position, lease.epoch, lease.owner) == ('"7"', 0, None)


@pytest.mark.parametrize(("now", "alive"), [(100.0, True), (159.0, True), (160.0, False)])
def test_who_wrote_lately_may_be_alive(now: float, alive: bool) -> None:  # noqa: FBT001
    assert may_be_alive(foreign("1"), now=now, expiration=60.0) == alive


def test_a_fleet_that_stopped_a_moment_ago_is_not_taken_for_a_living_one() -> None:
    before = [foreign("1"), foreign("2")]
    assert moved(before, before) == []
    assert moved(before, [foreign("1"), replace(foreign("2"), stamp=117.0)]) == ["java-1"]
    released = replace(foreign("2"), owner=HostName(""), stamp=117.0)
    assert moved(before, [foreign("1"), released]) == []
    assert moved([], [foreign("1")]) == ["java-1"]
