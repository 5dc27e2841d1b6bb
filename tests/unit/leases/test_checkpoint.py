"""What a store keeps of a checkpoint, and what comes back of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import Position
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.runtime.errors import StoreRefused
from tests.support.any_record import CHECKPOINT


@given(CHECKPOINT | st.builds(Checkpoint, st.text(alphabet="\x1f[]1,")))
def test_a_checkpoint_is_read_as_it_was_written(written: Checkpoint) -> None:
    assert Checkpoint.of_text(written.text) == written


def test_where_nothing_waits_a_store_keeps_the_bare_position() -> None:
    assert Checkpoint(Position("17")).text == "17"


def test_holes_take_little_room() -> None:
    holes = tuple(Hole(hash_of(str(n)), 1_000_000_000 + n, 3) for n in range(64))
    assert len(Checkpoint(Position("999999999"), 1_000_000_100, holes).text) < 2_500


def test_what_was_changed_by_hand_is_refused_with_advice() -> None:
    text = Checkpoint(Position("17"), 20, (Hole(hash_of("k"), 18),)).text
    with pytest.raises(StoreRefused, match=r"'17'.*changefeed reset"):
        Checkpoint.of_text(text[:-1])
