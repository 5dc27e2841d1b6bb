"""What the benchmarks count of deliveries: repetitions, by whose turn it was."""

from pathlib import Path

import pytest

from benchmarks.deliveries import Delivery, by_turn, read_deliveries
from changefeed.feeds.feed import RangeId


def given(host: str, first: int, last: int, *, range_id: str = "r1") -> Delivery:
    return Delivery(
        host=host, range_id=RangeId(range_id), first=first, last=last, began=0.0, ended=None
    )


def test_what_a_new_owner_is_given_again_counts_as_its_own() -> None:
    batches = [given("a", 1, 100), given("a", 101, 200), given("b", 101, 200)]
    assert by_turn([*batches, given("b", 201, 300), given("a", 251, 400)]) == [0, 100, 50]


def test_a_change_that_was_left_out_is_no_small_matter() -> None:
    with pytest.raises(AssertionError, match="r1: an owner began at 12"):
        by_turn([given("a", 1, 10), given("b", 12, 20)])


def test_a_batch_that_a_killed_host_began_counts_and_half_a_line_does_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "b.deliveries").write_text('["began","r1",2,11,20,5.0]\n')
    (tmp_path / "a.deliveries").write_text(
        '["began","r1",1,1,10,1.0]\n'
        '["ended","r1",1,1,10,2.0]\n'
        '["began","r1",1,11,20,3.0]\n'
        '["ended","r1",1,11'
    )
    found = read_deliveries(tmp_path)
    assert [(x.host, x.first, x.ended) for x in found] == [
        ("a", 1, 2.0),
        ("a", 11, None),
        ("b", 11, None),
    ]
