"""The key map under fleets that are driven at random, and in the cases that these do not have.

To look at one fleet: ``World(seed, trouble).run()``.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Child, FeedRange, Position, RangeId
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, RangeEnd
from tests.unit.leases.keymap_world import Trouble, World, spanning

SEEDS = range(25)
START = Position("0")


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(torn=0, late=0),
        Trouble(),
        Trouble(torn=0.02, late=0.3),
        Trouble(somewhere=True),
    ],
    ids=["calm", "torn and late", "very late", "from some time on"],
)
def test_each_key_is_read_once_in_order_and_to_the_end(trouble: Trouble) -> None:
    for seed in SEEDS:
        world = World(seed, trouble)
        world.run()
        assert world.is_read, f"seed {seed}: {world.done} of {world.feed.last()}"
        assert not world.keymap().overlaps(), f"seed {seed}"
        assert not world.keymap().orphans(), f"seed {seed}"


def test_keys_of_leases_that_were_deleted_by_hand_are_read_or_reported() -> None:
    for seed in SEEDS:
        world = World(seed, Trouble(torn=0.02, by_hand=0.003))
        world.run()
        assert world.is_read or world.keymap().orphans(), f"seed {seed}"


def test_beside_hosts_of_dotnet_nothing_is_skipped_and_all_is_read_or_reported() -> None:
    for seed in SEEDS:
        world = World(seed, Trouble(torn=0.02, dotnet=True))
        world.run()
        assert world.is_read or world.keymap().orphans(), f"seed {seed}"


def lease(found: FeedRange, *, epoch: int = 1, **more: Any) -> Lease:
    return replace(Lease(range=found, epoch=epoch), **more)


def ended(found: FeedRange, *children: FeedRange) -> Lease:
    end = RangeEnd(children=tuple(Child(range=x, start=START) for x in children))
    return Lease(range=found, epoch=1, end=end)


def names(leases: Sequence[Lease]) -> list[str]:
    return sorted(x.range_id for x in leases)


PARENT = spanning("p", 0, 4, (0, 0))
LEFT = spanning("a", 0, 2, (1, 0))
RIGHT = spanning("b", 2, 4, (1, 0))
MERGED = spanning("m", 0, 4, (2, 0))


def test_a_child_whose_keys_a_later_range_has_had_does_not_come_again() -> None:
    assert len(KeyMap([ended(PARENT, LEFT, RIGHT)]).new_leases) == 2
    assert not KeyMap([ended(PARENT, LEFT, RIGHT), ended(MERGED)]).new_leases


def test_what_was_written_late_is_not_read_and_is_deleted() -> None:
    echo = lease(LEFT, epoch=0)
    keymap = KeyMap([echo, lease(MERGED)])
    assert (names(keymap.readable()), names(keymap.superseded())) == (["m"], ["a"])
    foreign = replace(echo, stamp=1.0)
    assert not KeyMap([foreign, lease(MERGED)]).superseded()


def test_a_paused_lease_keeps_its_keys() -> None:
    assert not KeyMap([lease(PARENT, paused="by hand")]).readable()
    waiting = [lease(LEFT, epoch=0), lease(PARENT, epoch=0, paused="by hand")]
    assert names(KeyMap(waiting).readable()) == ["a"]


def test_keys_without_a_lease_are_gaps_unless_they_come_or_have_ended() -> None:
    assert KeyMap([lease(LEFT)], ranges=[LEFT, RIGHT]).gaps() == [("02", "04")]
    assert not KeyMap([lease(LEFT), ended(RIGHT)], ranges=[LEFT, RIGHT]).gaps()
    listed = [LEFT, dataclasses.replace(RIGHT, parents=(PARENT.id,))]
    unbounded = lease(FeedRange(id=PARENT.id))
    assert not KeyMap([lease(LEFT), unbounded], ranges=listed).gaps()
    stranger = lease(FeedRange(id=RangeId("x")))
    assert KeyMap([lease(LEFT), stranger], ranges=listed).gaps() == [("02", "04")]


def test_without_bounds_names_alone_say_what_goes_on() -> None:
    parent, child = FeedRange(id=RangeId("p")), FeedRange(id=RangeId("c"), generation=(1, 0))
    assert [x.child.range for x in KeyMap([ended(parent, child)]).new_leases] == [child]
    going_on = [ended(parent, child), lease(child)]
    assert not KeyMap(going_on).new_leases
    assert names(KeyMap(going_on).finished(())) == ["p"]
    root = RangeEnd(children=(Child(range=parent, start=START),))
    assert not KeyMap(going_on, root=root).finished(())
