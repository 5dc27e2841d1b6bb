"""What a store keeps of a checkpoint, and what comes back of it."""

from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import Position
from changefeed.leases.checkpoint import Checkpoint


@given(st.text())
def test_a_checkpoint_is_read_as_it_was_written(position: str) -> None:
    written = Checkpoint(Position(position))
    assert Checkpoint.of_text(written.text) == written
