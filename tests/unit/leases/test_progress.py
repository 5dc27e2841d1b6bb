"""What is done of a range, and the checkpoint that says so."""

import pytest

from changefeed.feeds.feed import Change, Position
from changefeed.leases.checkpoint import MAX_HOLES, Checkpoint, Hole, Progress, hash_of
from tests.support import make

ONE, TWO, THREE, FOUR, FIVE = CHANGES = [make.change(n, key=f"k{n}") for n in range(1, 6)]


def begun(at: str = "0", high: int | None = None, *holes: Hole) -> Progress:
    start = Checkpoint(Position(at), high, holes)
    return Progress(start, lambda x: Position(str(x.sequence)))


def read(*changes: Change) -> Progress:
    progress = begun()
    progress.read(changes, None)
    return progress


def hole(change: Change, failures: int = 0) -> Hole:
    return Hole(hash_of(change.key), change.sequence, failures)


def test_what_is_done_in_order_costs_a_position_and_nothing_else() -> None:
    progress = read(*CHANGES)
    progress.done(CHANGES[:3])
    assert progress.checkpoint({}) == Checkpoint(Position("3"))


def test_a_key_that_waits_is_a_hole_in_what_is_done() -> None:
    progress = read(*CHANGES)
    progress.done([ONE, THREE, FIVE])
    assert progress.checkpoint({2: 3}) == Checkpoint(
        Position("1"), 5, (hole(TWO, 3), hole(FOUR))
    )


@pytest.mark.parametrize("order", [(5, 4, 3, 2, 1), (2, 4, 1, 3, 5), (1, 2, 3, 4, 5)])
def test_in_whatever_order_they_are_done_the_last_one_moves_the_position_to_the_end(
    order: tuple[int, ...],
) -> None:
    progress = read(*CHANGES)
    assert [progress.done([CHANGES[n - 1]]) for n in order] == [1] * 5
    assert progress.done([THREE]) == 0  # it says nothing new
    assert progress.checkpoint({}) == Checkpoint(Position("5"))
    assert progress.unacknowledged == 0


def test_behind_as_many_keys_as_there_may_be_holes_nothing_counts_as_done() -> None:
    changes = [make.change(n, key=f"k{n}") for n in range(1, 101)]
    progress = read(*changes)
    progress.done(changes[-1:])
    kept = progress.checkpoint({})
    assert (kept.position, kept.high, len(kept.holes)) == ("0", MAX_HOLES, MAX_HOLES)


def test_the_next_owner_is_handed_what_is_in_holes_and_above_them() -> None:
    progress = begun("1", 4, hole(TWO, 2))
    assert [x.sequence for x in progress.read(CHANGES[1:], Position("5"))] == [2, 5]
    assert progress.failures(CHANGES[1:]) == {2: 2}
    progress.done([FIVE])
    assert progress.checkpoint({2: 2}) == Checkpoint(Position("1"), 5, (hole(TWO, 2),))


def test_what_an_owner_before_has_done_stays_done_though_this_one_has_not_read_it() -> None:
    later = make.change(4, key="k2")
    progress = begun("1", 4, hole(TWO))
    left = progress.read([TWO, THREE], Position("3"))
    progress.done(left)
    assert progress.checkpoint({}) == Checkpoint(Position("3"), 4, (hole(later),))


def test_an_empty_page_passes_over_nothing_that_is_not_done() -> None:
    progress = read(ONE, TWO)
    progress.done([ONE])
    progress.read([], Position("9"))
    assert progress.checkpoint({}).position == "1"
    progress.done([TWO])
    assert progress.checkpoint({}).position == "9"


def test_what_no_checkpoint_can_say_counts_until_what_is_before_it_is_done() -> None:
    same = [make.change(n, key="k") for n in range(1, 5)]
    progress = read(*same)
    progress.done(same[1:3])  # acknowledged in another order
    assert progress.uncovered == 2
    progress.done(same[:1])
    assert progress.uncovered == 0


def test_behind_as_many_keys_as_there_may_be_holes_what_is_done_counts_as_uncovered() -> None:
    changes = [make.change(n, key=f"k{n}") for n in range(1, 101)]
    progress = read(*changes)
    progress.done(changes[MAX_HOLES + 1 :])
    assert progress.uncovered == 100 - MAX_HOLES - 1
    progress.done(changes[:1])
    assert progress.uncovered == 0
