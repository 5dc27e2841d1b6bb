"""Which delivered changes are done."""

import pytest

from changefeed.feeds.feed import Change
from changefeed.host.workers.acknowledgements import Acknowledgements
from tests.support import make

ONE, TWO, THREE, FOUR = (make.change(n) for n in (1, 2, 3, 4))


def in_hand(*changes: Change) -> Acknowledgements:
    acknowledgements = Acknowledgements()
    acknowledgements.deliver(changes)
    return acknowledgements


def test_what_is_delivered_again_by_a_wrapper_is_in_hand_once() -> None:
    acknowledgements = in_hand(ONE, TWO)
    acknowledgements.deliver([ONE, TWO])
    acknowledgements.deliver([TWO, THREE])
    assert acknowledgements.unacknowledged == 3
    assert acknowledgements.done_up_to(THREE) == THREE
    assert acknowledgements.unacknowledged == 0


def test_a_batch_that_returned_is_done_and_stays_delivered() -> None:
    acknowledgements = in_hand(ONE, TWO)
    acknowledgements.all_done()
    assert acknowledgements.unacknowledged == 0
    assert acknowledgements.was_delivered(TWO)
    assert not acknowledgements.was_delivered(THREE)
    assert acknowledgements.done(TWO) is None  # it says nothing new


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (2, 4, 1, 3), (1, 2, 3, 4)])
def test_in_whatever_order_they_are_done_the_last_one_moves_the_watermark_to_the_end(
    order: tuple[int, ...],
) -> None:
    acknowledgements = in_hand(ONE, TWO, THREE, FOUR)
    moved = [acknowledgements.done(make.change(n)) for n in order]
    assert moved[-1] == FOUR
    assert acknowledgements.unacknowledged == 0
