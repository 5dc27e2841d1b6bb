"""What the benchmark of brokers computes from what it has measured and counted."""

from pathlib import Path

import pytest

from benchmarks.brokers.costs import page, read_counted
from benchmarks.brokers.latency import Call, Put, beyond, percentile

ROOT = Path(__file__).parents[3]


def test_a_percentile_is_the_value_that_so_many_of_a_hundred_do_not_exceed() -> None:
    values = [float(n) for n in range(101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([7.0], 99) == 7.0


def test_a_call_took_what_is_left_of_it_after_the_linger_and_the_put_of_its_object() -> None:
    puts = [Put(1.0, 1.5), Put(2.0, 2.25), Put(2.5, 9.0)]
    [share] = beyond([Call(1.75, 2.5)], puts, 0.125)
    assert share == 0.75 - 0.125 - 0.25


def test_the_object_of_a_call_is_the_one_that_was_durable_last_also_out_of_order() -> None:
    puts = [Put(2.0, 2.25), Put(1.0, 1.5)]
    assert beyond([Call(1.0, 2.0)], puts, 0.0) == [0.5]


def test_a_call_that_was_answered_before_anything_was_durable_is_refused() -> None:
    with pytest.raises(ValueError, match="before anything was durable"):
        beyond([Call(0.0, 0.5)], [Put(0.5, 1.0)], 0.0)


def test_the_page_of_clusters_has_the_table_that_the_counts_make() -> None:
    said = (ROOT / "docs/cluster.md").read_text()
    advice = "put in what this prints: python -m benchmarks.brokers.costs"
    assert page(read_counted()) in said, advice
