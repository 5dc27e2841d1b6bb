"""The rules of histories: each is broken once, and what is right breaks none."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.testing.history import (
    Checkpoints,
    Delivery,
    KeyedChange,
    KeyRecord,
    Rule,
    StoredCheckpoint,
    repeated,
    violations,
)


def delivered(sequence: int, *, epoch: int = 1, begins_batch: bool = True) -> Delivery:
    """Change ``sequence`` of range r0, whose keys are k0 and k1 in turn."""
    return Delivery(
        host="anna",
        range_id="r0",
        epoch=epoch,
        sequence=sequence,
        key=f"k{sequence % 2}",
        number=sequence,
        begins_batch=begins_batch,
    )


WRITTEN = {"k0": [2, 4], "k1": [1, 3]}
ALL = [delivered(n) for n in (1, 2, 3, 4)]


def rules(
    history: Sequence[Delivery | StoredCheckpoint], repeats: int | None = None
) -> list[Rule]:
    return [x.rule for x in violations(history, WRITTEN, repeats=repeats)]


def test_each_change_once_and_in_order_breaks_no_rule() -> None:
    assert rules([*ALL, StoredCheckpoint(range_id="r0", sequence=4)], repeats=0) == []
    assert repeated(ALL) == 0


def test_an_owner_that_begins_may_repeat_so_many_changes_and_no_more() -> None:
    history = [*ALL[:3], *(delivered(n, epoch=2) for n in (2, 3, 4))]
    assert rules(history, repeats=2) == []
    assert rules(history) == []
    assert repeated(history) == 2
    assert rules(history, repeats=1) == [Rule.REPEATED]


BROKEN = {
    "a change that nobody was given": (ALL[:3], Rule.LOST),
    "a change that nobody wrote": ([*ALL, delivered(5)], Rule.INVENTED),
    "a change before an earlier one of its key": (
        [ALL[0], ALL[3], *(delivered(n, epoch=2) for n in (2, 3, 4))],
        Rule.ORDER,
    ),
    "a change left out in a tenure": ([ALL[0], ALL[2], *ALL[1:]], Rule.GAP),
    "a change left out between two owners": (
        [ALL[0], *(delivered(n, epoch=2) for n in (3, 4)), delivered(2, epoch=3)],
        Rule.GAP,
    ),
    "a change that comes twice in a tenure": ([*ALL[:2], *ALL[1:]], Rule.GAP),
    "a batch of an owner that was followed by another": (
        [*ALL[:2], delivered(2, epoch=2), ALL[2], delivered(3, epoch=2), delivered(4, epoch=2)],
        Rule.EPOCH,
    ),
    "a checkpoint that goes back": (
        [*ALL, *(StoredCheckpoint(range_id="r0", sequence=n) for n in (4, 3))],
        Rule.CHECKPOINT_BACK,
    ),
    "a checkpoint ahead of what was delivered": (
        [*ALL[:3], StoredCheckpoint(range_id="r0", sequence=4), ALL[3]],
        Rule.CHECKPOINT_AHEAD,
    ),
}


@pytest.mark.parametrize(("history", "rule"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_a_rule_is_seen(
    history: Sequence[Delivery | StoredCheckpoint], rule: Rule
) -> None:
    assert rule in rules(history)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 5))
def test_whatever_owners_crash_none_breaks_a_rule_unless_a_change_is_dropped(
    seed: int, changes: int, owners: int
) -> None:
    """Each owner begins at the checkpoint before it, and goes on for a while."""
    random = Random(seed)
    history: list[Delivery | StoredCheckpoint] = []
    checkpoint = reached = 0
    for epoch in range(1, owners + 1):
        end = changes if epoch == owners else random.randint(checkpoint, changes)
        history += [delivered(n, epoch=epoch) for n in range(checkpoint + 1, end + 1)]
        reached = max(reached, end)
        checkpoint = random.randint(checkpoint, max(checkpoint, end))
        history.append(StoredCheckpoint(range_id="r0", sequence=checkpoint))
    written = {f"k{x}": range(x or 2, changes + 1, 2) for x in (0, 1)}
    assert violations(history, written) == []
    dropped = random.randint(1, changes)
    left = [x for x in history if not isinstance(x, Delivery) or x.sequence != dropped]
    assert Rule.LOST in [x.rule for x in violations(left, written)]


def test_of_changes_that_begin_together_each_waits_for_the_one_before() -> None:
    keys = KeyRecord(WRITTEN)
    first, second = KeyedChange("k1", 1), KeyedChange("k1", 3)
    assert [*keys.early([first, second])] == []
    assert [x.rule for x in keys.early([second])] == [Rule.ORDER]
    assert not keys.done(first)
    assert keys.done(first)
    assert first in keys
    assert second not in keys
    assert [*keys.early([second])] == []
    assert keys.missing() == [KeyedChange("k0", 2), KeyedChange("k0", 4), second]


def test_a_checkpoint_that_a_person_moved_goes_on_from_there() -> None:
    checkpoints = Checkpoints()
    assert [*checkpoints.stored("r0", 4, "abcd", "abcd")] == []
    assert checkpoints.furthest == 4
    checkpoints.moved("r0", 1)
    assert [*checkpoints.stored("r0", 2, "b", "b")] == []
    assert [x.rule for x in checkpoints.stored("r0", 1, "", "")] == [Rule.CHECKPOINT_BACK]
