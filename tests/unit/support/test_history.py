"""The checker of histories sees what it is there to see."""

import pytest

from tests.support.history import Handed, repeated, violations


def handed(sequence: int, *, epoch: int = 1, begins_batch: bool = True) -> Handed:
    """Change ``sequence`` of range r0, whose keys are k0 and k1 in turn."""
    return Handed(
        pid=epoch,
        host="anna",
        range_id="r0",
        epoch=epoch,
        sequence=sequence,
        key=f"k{sequence % 2}",
        number=sequence,
        begins_batch=begins_batch,
    )


APPENDED = {"k0": [2, 4], "k1": [1, 3]}
ALL = [handed(n) for n in (1, 2, 3, 4)]


def test_each_change_once_and_in_order_is_fine() -> None:
    assert violations(ALL, APPENDED, repeats=0) == []
    assert repeated(ALL) == 0


def test_a_new_owner_may_repeat_so_many_changes_and_no_more() -> None:
    history = [handed(n) for n in (1, 2, 3)] + [handed(n, epoch=2) for n in (2, 3, 4)]
    assert violations(history, APPENDED, repeats=2) == []
    assert repeated(history) == 2
    (one,) = violations(history, APPENDED, repeats=1)
    assert "begins an epoch with 2 repeated changes, 1 may be" in one


def test_a_change_that_nobody_was_handed_is_lost() -> None:
    assert violations(ALL[:3], APPENDED, repeats=0) == [
        "1 changes were never handed to anybody: [('k0', 4)]"
    ]


def test_a_change_before_an_earlier_one_of_its_key_is_seen() -> None:
    history = [handed(1), handed(2), handed(4, epoch=2), *(handed(n, epoch=3) for n in (3, 4))]
    assert violations(history, APPENDED, repeats=9) == []  # 4 follows 2 in its key
    history = [handed(1), handed(4, epoch=2), *(handed(n, epoch=3) for n in (2, 3, 4))]
    (one,) = violations(history, APPENDED, repeats=9)
    assert "came before an earlier change of its key" in one


@pytest.mark.parametrize("order", [(1, 3, 2, 4), (1, 2, 2, 3, 4)], ids=["gap", "repeat"])
def test_one_owner_is_handed_one_change_after_the_other(order: tuple[int, ...]) -> None:
    found = violations([handed(n) for n in order], APPENDED, repeats=9)
    assert any("to the same owner" in x for x in found)


def test_a_batch_that_begins_under_an_epoch_that_is_over_is_seen() -> None:
    begun = [handed(1), handed(2), handed(2, epoch=2)]
    rest = [handed(3, begins_batch=False), handed(3, epoch=2), handed(4, epoch=2)]
    assert violations([*begun, *rest], APPENDED, repeats=9) == []  # begun before that
    (one,) = violations([*begun, handed(3), *rest[1:]], APPENDED, repeats=9)
    assert "began a batch although epoch 2 had begun" in one
