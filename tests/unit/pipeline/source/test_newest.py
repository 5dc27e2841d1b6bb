"""The newest bodies of feeds of every kind, without Spark."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from changefeed.feeds.feed import Operation, RangeId
from changefeed.log.records import Record
from changefeed.pipeline.source.newest import newest_bodies
from tests.support.pipeline_cosmos import served_cosmos
from tests.support.pipeline_feeds import a_log, append_records, append_to
from tests.support.succession import replace_partitions

pytestmark = pytest.mark.real_time

WHOLE = RangeId("e1.p01.v00-ff")


def numbers(feed: str, count: int) -> list[int]:
    return sorted(json.loads(x)["n"] for x in newest_bodies(feed, count))


def test_of_a_log_the_last_are_read_deletes_left_out(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 100}, parts=1)
    assert numbers(feed, 10) == [*range(90, 100)]
    assert len(numbers(feed, 1000)) == 100
    append_records(tmp_path / "log", [Record(key="a", operation=Operation.DELETE)] * 50)
    assert numbers(feed, 10) == [*range(90, 100)]


def test_each_range_has_its_share(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {f"k{n}": 100 for n in range(8)}, parts=4)
    found = Counter(numbers(feed, 80))
    assert found.total() == 80
    assert min(found) >= 50, "they are the newest of each"


def test_ranges_of_now_come_before_those_that_ended(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 100}, parts=1)
    asyncio.run(replace_partitions(tmp_path / "log", [WHOLE], [(0, 0, 99), (0, 100, 255)]))
    append_to(tmp_path / "log", {"a": 7})
    assert numbers(feed, 7) == [*range(7)]
    assert numbers(feed, 9) == sorted([*range(7), 98, 99])


@pytest.mark.parametrize("mode", [None, "all-versions"])
def test_in_cosmos_db_it_looks_on_past_what_was_written_again(mode: str | None) -> None:
    with served_cosmos() as cosmos:
        cosmos.put(20, keys=10, n=1)
        for n in range(2, 22):
            cosmos.put(2, keys=1, n=n)
        found = numbers(cosmos.address(mode), 20)
        assert (len(found), found[-2:]) == (20, [21, 21])
        assert numbers(cosmos.address(mode), 2)[-1] == 21
