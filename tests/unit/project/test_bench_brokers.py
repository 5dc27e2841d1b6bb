"""What the benchmark of brokers computes from what it has measured and counted."""

from pathlib import Path

import pytest

from benchmarks.brokers.costs import (
    PRICES,
    Prices,
    Second,
    kept,
    page,
    read_counted,
)
from benchmarks.brokers.latency import Call, Put, beyond, percentile

ROOT = Path(__file__).parents[3]
CHEAP = Prices(name="cheap", writes=1.0, reads=0.1, month_of_gb=0.73, source="a test")


def second(*, creates: float = 0, puts: float = 0, gets: float = 0, lists: float = 0) -> Second:
    return Second(creates=creates, puts=puts, gets=gets, lists=lists)


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


def test_requests_are_charged_by_the_thousand_and_listings_as_writes() -> None:
    asked = second(creates=1, puts=2, gets=10, lists=4)
    assert asked.writes == 7
    assert asked.dollars(CHEAP) == 3.6 * (7 * 1.0 + 10 * 0.1)


def test_a_broker_makes_an_object_each_linger_and_looks_for_a_catalog_and_for_others() -> None:
    [ten, *_] = read_counted()
    assert (ten.mb, ten.brokers) == (10, 1)
    assert 9 < ten.second.creates < 10
    assert 0.8 < ten.second.puts <= 1


def test_a_days_records_are_stored_for_an_hour_of_a_month() -> None:
    # 1 MB/s are 86.4 GB in a day, at a thousandth of a dollar for a GB and hour.
    assert kept(CHEAP, 1.0) == pytest.approx(0.0864)


def test_the_page_of_clusters_has_the_table_that_the_counts_make() -> None:
    said = (ROOT / "docs/cluster.md").read_text()
    advice = "put in what this prints: python -m benchmarks.brokers.costs"
    assert page(read_counted()) in said, advice


def test_each_price_says_whose_it_is_and_when_it_was_looked_up() -> None:
    assert all("202" in x.source and "." in x.source for x in PRICES)
