"""Which delivered changes are done."""

import pytest

from changefeed.feeds.feed import Change
from changefeed.host.workers.acknowledgements import Progress
from tests.support.observing import change

ONE, TWO, THREE, FOUR = (change(n) for n in (1, 2, 3, 4))


def in_hand(*changes: Change) -> Progress:
    progress = Progress()
    progress.deliver(changes)
    return progress


def test_what_was_done_early_and_comes_again_has_to_be_done_again() -> None:
    progress = in_hand(ONE, TWO, THREE)
    assert progress.done(TWO) is None
    progress.forget()
    progress.deliver([ONE, TWO, THREE])
    assert progress.done(ONE) == ONE
    assert progress.unacknowledged == 2
    assert progress.done(TWO) == TWO


def test_what_is_delivered_again_by_a_wrapper_is_in_hand_once() -> None:
    progress = in_hand(ONE, TWO)
    progress.deliver([ONE, TWO])
    progress.deliver([TWO, THREE])
    assert progress.unacknowledged == 3
    assert progress.done_up_to(THREE) == THREE
    assert progress.unacknowledged == 0


def test_a_batch_that_returned_is_done_and_stays_delivered() -> None:
    progress = in_hand(ONE, TWO)
    progress.all_done()
    assert progress.unacknowledged == 0
    assert progress.was_delivered(TWO)
    assert not progress.was_delivered(THREE)
    assert progress.done(TWO) is None  # it says nothing new


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (2, 4, 1, 3), (1, 2, 3, 4)])
def test_in_whatever_order_they_are_done_the_last_one_moves_the_watermark_to_the_end(
    order: tuple[int, ...],
) -> None:
    progress = in_hand(ONE, TWO, THREE, FOUR)
    moved = [progress.done(change(n)) for n in order]
    assert moved[-1] == FOUR
    assert progress.unacknowledged == 0
