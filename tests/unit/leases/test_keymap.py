"""The key map, case by case; the simulation drives fleets over it at random."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from tests.support import make


def spanning(name: str, low: int, high: int, generation: tuple[int, int]) -> FeedRange:
    return make.feed_range(name, f"{low:02d}", f"{high:02d}", generation=generation)


lease = partial(make.lease, epoch=1)


def ended(found: FeedRange, *children: FeedRange) -> Lease:
    return lease(found, end=make.end(*children))


def names(leases: Sequence[Lease]) -> list[str]:
    return sorted(x.range_id for x in leases)


PARENT = spanning("p", 0, 4, (0, 0))
LEFT = spanning("a", 0, 2, (1, 0))
RIGHT = spanning("b", 2, 4, (1, 0))
MERGED = spanning("m", 0, 4, (2, 0))


def test_a_child_whose_keys_a_later_range_has_had_does_not_come_again() -> None:
    assert len(KeyMap([ended(PARENT, LEFT, RIGHT)]).new_leases) == 2
    assert not KeyMap([ended(PARENT, LEFT, RIGHT), ended(MERGED)]).new_leases


def test_keys_of_a_range_that_was_closed_for_good_wait_for_nobody() -> None:
    assert not KeyMap([ended(MERGED)]).orphans()
    assert KeyMap([ended(LEFT), ended(RIGHT, MERGED)]).orphans() == [("02", "04")]


def test_what_another_processor_made_and_the_feed_lists_no_more_does_not_come_again() -> None:
    unknown = dataclasses.replace(LEFT, generation=(0, 0))  # others do not say it
    parts = [spanning("c", 0, 1, (2, 0)), spanning("d", 1, 2, (2, 0))]
    keymap = KeyMap([ended(PARENT, LEFT, RIGHT), ended(unknown, *parts)])
    assert sorted(x.child.range.id for x in keymap.new_leases) == ["b", "c", "d"]


def test_a_child_of_two_parents_comes_when_both_have_ended() -> None:
    for other in ([lease(RIGHT)], []):  # it is read, or somebody has deleted its lease
        assert not KeyMap([ended(LEFT, MERGED), *other]).new_leases
    (come,) = KeyMap([ended(LEFT, MERGED), ended(RIGHT, MERGED)]).new_leases
    assert come.child.range == MERGED


def test_a_child_comes_in_part_where_its_other_keys_have_gone_on() -> None:
    parts = [spanning("p~0-1", 0, 1, (0, 1)), spanning("p~1-4", 1, 4, (0, 1))]
    middle, later = (spanning(x, n, n + 1, (2, 0)) for n, x in enumerate(("c", "d"), start=1))
    again = lease(middle)  # all leases were lost, and its owner has created it again
    known = [ended(parts[0], MERGED), again, lease(later, epoch=0)]
    (left,) = KeyMap(known).new_leases
    assert (left.child.range.low, left.child.range.high) == ("00", "01")
    root = make.end(MERGED, at="7")  # what fills a gap may be older than that
    (left,) = KeyMap(known, root=root).new_leases
    assert (left.child.range.high, left.start) == ("01", Checkpoint.of_text("7"))
    assert not KeyMap([*known, lease(parts[1])]).orphans()
    assert not KeyMap([*known, lease(spanning("x", 0, 1, (0, 0)))]).new_leases
    waiting = [ended(parts[0], MERGED), lease(parts[1])]
    assert not KeyMap(waiting).new_leases
    assert not KeyMap([], root=known[0].end, ranges=[again.range]).orphans()


def test_an_unread_lease_begins_where_tombstones_say_and_not_where_the_root_says() -> None:
    unread = lease(LEFT, epoch=0)
    tombstone = ended(PARENT, LEFT, RIGHT)
    assert KeyMap([tombstone, unread]).start_of(unread) == Checkpoint.of_text("0")
    foreign = replace(unread, range=dataclasses.replace(LEFT, generation=(0, 0)), stamp=1.0)
    assert KeyMap([tombstone, foreign]).start_of(foreign) == Checkpoint.of_text("0")
    root = make.end(LEFT)
    assert KeyMap([unread], root=root).start_of(unread) is None
    assert not KeyMap([], root=root).orphans()
    assert KeyMap([unread]).start_of(unread) is None


def test_what_was_written_late_is_not_read_and_is_deleted() -> None:
    echo = lease(LEFT, epoch=0)
    keymap = KeyMap([echo, lease(MERGED)])
    assert (names(keymap.readable()), names(keymap.stale())) == (["m"], ["a"])
    foreign = replace(echo, stamp=1.0)
    assert not KeyMap([foreign, lease(MERGED)]).stale()
    made_again = replace(lease(LEFT), stamp=1.0)  # by its owner, too late
    keymap = KeyMap([made_again, lease(MERGED)])
    assert (names(keymap.readable()), names(keymap.stale())) == (["m"], ["a"])
    assert names(KeyMap([made_again, lease(MERGED, epoch=0)]).readable()) == ["a"]
    by_another = replace(made_again, stamp=None)  # over a checkpoint that is kept apart
    for x in (by_another, made_again.renewed(), replace(made_again, owner="h")):
        assert not KeyMap([x, lease(MERGED)]).stale()


def test_a_paused_lease_keeps_its_keys() -> None:
    assert not KeyMap([lease(PARENT, paused="by hand")]).readable()
    waiting = [lease(LEFT, epoch=0), lease(PARENT, epoch=0, paused="by hand")]
    assert names(KeyMap(waiting).readable()) == ["a"]


def test_keys_without_a_lease_are_gaps_unless_they_come_or_have_ended() -> None:
    assert KeyMap([lease(LEFT)], ranges=[LEFT, RIGHT]).gaps() == [("02", "04")]
    assert not KeyMap([lease(LEFT), ended(RIGHT)], ranges=[LEFT, RIGHT]).gaps()
    listed = [LEFT, dataclasses.replace(RIGHT, parents=(PARENT.id,))]
    unbounded = lease("p")
    assert not KeyMap([lease(LEFT), unbounded], ranges=listed).gaps()
    assert KeyMap([lease(LEFT), lease("x")], ranges=listed).gaps() == [("02", "04")]


def test_gaps_are_filled_by_what_the_oldest_ranges_hold_of_them() -> None:
    halves = [dataclasses.replace(x, parents=(PARENT.id,)) for x in (LEFT, RIGHT)]
    joined = dataclasses.replace(MERGED, parents=(PARENT.id, LEFT.id, RIGHT.id))

    def filling(*leases: Lease, ranges: Sequence[FeedRange], **more: Any) -> list[Any]:
        found = KeyMap(leases, ranges=ranges, **more).ranges_for_gaps()
        return [(x.id, x.low, x.high) for x in found]

    whole = [("p", "00", "04")]
    assert filling(ranges=[PARENT, *halves]) == filling(ranges=[PARENT, joined]) == whole
    assert filling(lease(LEFT), ranges=[*halves, joined]) == [("b", "02", "04")]
    later = lease(spanning("x", 0, 2, (3, 0)))  # the fleet has begun with what was joined
    found = filling(later, ranges=[PARENT, joined], root=make.end(joined))
    assert found == [("m", "02", "04")]
    of_both = [("b", "02", "04"), ("m", "00", "02")]  # the feed has forgotten the left one
    assert filling(ranges=[RIGHT, joined]) == of_both
    outer = [lease(spanning(x, n, n + 1, (1, 0))) for x, n in (("x", 1), ("y", 3))]
    assert filling(*outer, ranges=[joined]) == [("m", "00", "01"), ("m", "02", "03")]

    def whole_only(*_: Any) -> FeedRange:
        raise FeedRefused("its ranges cannot be read in parts")

    partless = [RIGHT, joined]
    assert filling(ranges=partless, sub_range=whole_only) == [("b", "02", "04")]
    left = KeyMap([], ranges=partless, sub_range=whole_only)
    assert (left.gaps(), left.orphans()) == ([("02", "04")], [("00", "02")])


def test_a_deleted_lease_keeps_back_what_has_its_keys_or_its_name() -> None:
    inner, beside = spanning("i", 1, 3, (0, 0)), spanning("s", 4, 6, (0, 0))
    unknown = make.feed_range("a")

    def kept_back(*deleted: FeedRange) -> list[str]:
        before = KeyMap(map(lease, deleted))
        new = KeyMap([ended(PARENT, LEFT, RIGHT)], begun=before.begun).new_leases
        return [x.child.range.id for x in new if x.kept_back]

    assert kept_back(beside) == []
    assert kept_back(beside, spanning("t", 0, 1, (0, 0))) == ["a"]
    assert kept_back(inner) == ["a", "b"]
    assert kept_back(unknown) == ["a"]
    begun = KeyMap(map(lease, (inner, beside))).begun
    assert KeyMap([lease(PARENT)], begun=begun).begun == {"p": PARENT, "s": beside}
    assert not KeyMap([ended(inner, LEFT)], begun={inner.id: inner}).begun


class Bound(str):
    """Counts how often bounds are compared."""

    __slots__ = ()

    compared = 0

    def __lt__(self, other: str) -> bool:
        Bound.compared += 1
        return super().__lt__(other)


def test_hundreds_of_deleted_leases_are_not_compared_with_each_that_is_read() -> None:
    bounds = [Bound(f"{n:04}") for n in range(1001)]
    leases = [lease(make.feed_range(x, x, y)) for x, y in pairwise(bounds)]
    begun = KeyMap(leases).begun
    Bound.compared = 0
    assert KeyMap(leases[::2], begun=begun).begun == begun
    assert Bound.compared < 50_000


def test_without_bounds_names_alone_say_what_goes_on() -> None:
    parent, child = make.feed_range("p"), make.feed_range("c", generation=(1, 0))
    assert [x.child.range for x in KeyMap([ended(parent, child)]).new_leases] == [child]
    going_on = [ended(parent, child), lease(child)]
    assert not KeyMap(going_on).new_leases
    assert names(KeyMap(going_on).finished(())) == ["p"]
    root = make.end(parent)
    assert not KeyMap(going_on, root=root).finished(())
