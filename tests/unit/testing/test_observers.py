"""Calling an observer without a host: the result says what a host would make of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from changefeed import Change, CloseReason, Context, Operation, UserError
from changefeed.testing import RecordingContext, deliver, make_changes

FIVE = make_changes(*((f"k{n}", n) for n in range(5)))


class Recording:
    def __init__(self, calls: list[Any], fails_at: int = -1, label: str = "") -> None:
        self.calls = calls
        self.fails_at = fails_at
        self.label = label

    async def open(self, context: Context) -> None:
        self.calls.append(("open", context.range.id, context.host, context.epoch, self.label))

    async def process(self, changes: Sequence[Change]) -> None:
        self.calls.append([x.sequence for x in changes])
        if changes[0].sequence == self.fails_at:
            raise ValueError("no")

    async def close(self, _: Context, reason: CloseReason) -> None:
        self.calls.append(reason)


async def test_an_observer_is_opened_called_in_order_and_closed() -> None:
    calls: list[Any] = []
    done = await deliver(Recording, FIVE, options={"calls": calls, "label": "x"}, batch_size=2)
    opened = ("open", "r1", "anna", 1, "x")
    assert calls == [opened, [1, 2], [3, 4], [5], CloseReason.STOPPING]
    assert (done.failure, done.done_up_to, list(done.unfinished)) == (None, 5, [])


async def test_after_a_failure_it_is_closed_and_the_batch_would_come_again() -> None:
    calls: list[Any] = []
    done = await deliver(Recording, FIVE, options={"calls": calls, "fails_at": 3}, batch_size=2)
    assert calls[1:] == [[1, 2], [3, 4], CloseReason.FAILED]
    assert isinstance(done.failure, ValueError)
    assert (done.done_up_to, [x.sequence for x in done.unfinished]) == (2, [3, 4])


async def test_manual_acknowledgements_count_up_to_the_first_gap() -> None:
    async def odd_ones_and_two(context: Context, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.sequence % 2 or change.sequence == 2:
                context.acknowledge(change)

    done = await deliver(odd_ones_and_two, FIVE, manual=True)
    assert list(done.acknowledged) == [1, 2, 3, 5]
    assert (done.done_up_to, [x.sequence for x in done.unfinished]) == (3, [4, 5])


async def test_a_checkpoint_takes_all_before_it_along() -> None:
    async def fourth(context: Context, changes: Sequence[Change]) -> None:
        context.checkpoint(changes[3])
        await context.flush()

    context = RecordingContext()
    done = await deliver(fourth, FIVE, manual=True, context=context)
    assert (list(done.checkpoints), done.done_up_to, context.flushes) == ([4], 4, 1)


async def test_what_was_not_delivered_cannot_be_acknowledged() -> None:
    async def ahead(context: Context, _: Sequence[Change]) -> None:
        context.acknowledge(FIVE[4])

    done = await deliver(ahead, FIVE, batch_size=1)
    assert isinstance(done.failure, ValueError)
    assert "was not delivered" in str(done.failure)


def plain(changes: Sequence[Change]) -> None:
    assert [x.value() for x in changes] == [0, 1, 2, 3, 4]


@pytest.mark.real_time
async def test_a_plain_function_is_called_too() -> None:
    assert (await deliver(plain, FIVE)).failure is None


async def test_what_no_host_could_call_is_refused() -> None:
    with pytest.raises(UserError, match="no method 'process"):
        await deliver(dict, FIVE)


async def test_changes_of_two_ranges_are_for_two_observers() -> None:
    with pytest.raises(ValueError, match="an observer sees one range"):
        await deliver(Recording, [*FIVE, *make_changes(("k", 1), range_id="r2")])


def test_made_changes_are_inserts_and_deletes_in_order() -> None:
    first, second = make_changes(("a", {"x": 1}), ("a", None), range_id="r7", begin=3)
    assert (first.operation, first.sequence, first.value()) == (Operation.INSERT, 3, {"x": 1})
    assert (second.operation, second.sequence, second.value()) == (Operation.DELETE, 4, None)
    assert {first.range_id, second.range_id} == {"r7"}
