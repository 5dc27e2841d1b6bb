"""Ranges of a log that are read in parts, as leases say it."""

from collections.abc import Sequence
from dataclasses import replace

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.lease import Lease
from changefeed.leases.parts import with_parts
from tests.support.partless_feed import Handing

FEED = MemoryFeed(0)
R0, R1 = RangeId("r0"), RangeId("r1")
LOW, MIDDLE, HIGH = f"{0:09x}", f"{2**31:09x}", f"{2**32:09x}"
WHOLE = FeedRange(id=R0, low=LOW, high=HIGH)
NEXT = FeedRange(id=R1, low=LOW, high=HIGH, parents=(R0,))
LOWER, UPPER = FEED.cut(WHOLE, 2)


def lease(found: FeedRange, *parents: RangeId, epoch: int = 3, ended: bool = False) -> Lease:
    placed = replace(found, parents=parents)
    return Lease(range=placed, continuation=Continuation("0"), epoch=epoch, ended=ended)


def listed(ranges: Sequence[FeedRange], *leases: Lease) -> dict[str, tuple[RangeId, ...]]:
    """Return what is listed, with its parents."""
    return {x.id: x.parents for x in with_parts(FEED, ranges, leases)}


def test_without_parts_ranges_are_as_the_feed_has_them() -> None:
    assert with_parts(FEED, [WHOLE, NEXT], [lease(WHOLE)]) == [WHOLE, NEXT]


def test_a_merged_range_waits_for_the_halves_that_are_read() -> None:
    half = replace(WHOLE, id=RangeId("0-8"), high=MIDDLE, generation=(3, 1))
    ended = lease(WHOLE, ended=True)
    (found,) = with_parts(Handing(0), [NEXT], [ended, lease(half, epoch=0)])
    assert found.parents == (R0, half.id)


def test_parts_stand_in_the_place_of_their_range_and_come_before_what_follows_it() -> None:
    found = listed([WHOLE, NEXT], lease(LOWER), lease(UPPER))
    assert found == {LOWER.id: (), UPPER.id: (), R1: (R0, LOWER.id, UPPER.id)}


def test_a_range_that_was_split_stays_listed_for_its_tombstone() -> None:
    split = lease(WHOLE).split_up()
    assert R0 in listed([WHOLE], split, lease(LOWER, R0), lease(UPPER, R0))


def test_what_follows_waits_only_for_parts_that_have_not_ended() -> None:
    found = listed([WHOLE, NEXT], lease(LOWER, ended=True), lease(UPPER))
    assert found == {UPPER.id: (), LOWER.id: (), R1: (R0, UPPER.id)}


def test_keys_that_no_lease_has_are_listed_as_a_part() -> None:
    assert listed([WHOLE], lease(LOWER)) == {LOWER.id: (), UPPER.id: (R0,)}


def test_parts_that_only_wait_for_their_range_do_not_stand_in_its_place() -> None:
    waiting = lease(LOWER, R0, epoch=0)
    assert listed([WHOLE, NEXT], lease(WHOLE), waiting) == {R0: (), R1: (R0, LOWER.id)}
    assert listed([WHOLE], waiting) == {R0: ()}  # the lease of the range was deleted


def test_what_was_read_to_the_end_stays_listed_and_what_was_split_by_hand_does_not() -> None:
    first, second = FEED.cut(LOWER, 2)
    parts = [lease(LOWER).split_up(), lease(first, LOWER.id), lease(second, LOWER.id)]
    assert [*listed([WHOLE], *parts, lease(UPPER, ended=True))] == [
        first.id,
        second.id,
        UPPER.id,
    ]


def test_what_was_merged_and_deleted_is_listed_though_its_parts_have_left_their_leases() -> (
    None
):
    halves = [lease(x).split_up() for x in FEED.cut(LOWER, 2)]
    assert listed([WHOLE], *halves, lease(UPPER)) == {UPPER.id: (), LOWER.id: (R0,)}


def test_a_range_whose_parts_have_all_lost_their_leases_is_listed_as_one_part() -> None:
    everything = FEED.joined([LOWER, UPPER])
    assert listed([WHOLE], lease(WHOLE).split_up()) == {R0: (), everything.id: (R0,)}
    assert listed([WHOLE], lease(WHOLE, ended=True)) == {R0: ()}


def test_parts_that_were_merged_into_what_is_not_listed_yet_keep_their_range_away() -> None:
    merged = [lease(LOWER).split_up(), lease(UPPER).split_up()]
    assert [*listed([WHOLE], *merged)] == [FEED.joined([LOWER, UPPER]).id]


def test_what_has_ended_in_one_of_two_listings_has_ended() -> None:
    both = [lease(WHOLE), lease(WHOLE).split_up(), lease(LOWER, R0), lease(UPPER, R0)]
    assert [*listed([WHOLE], *both)] == [R0, LOWER.id, UPPER.id]
