"""Cosmos DB through planners and tasks, over a real emulator."""

import asyncio
import time
from collections import Counter

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import Position, RangeId
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import (
    Target,
    first_offset,
    next_offset,
    plan_slices,
    target_at,
)
from changefeed.pipeline.source.reader import Access
from tests.support.pipeline_cosmos import Row, ServedCosmos, batch, rows

ZERO = RangeId("0")


def start_of(cosmos: ServedCosmos, mode: str) -> Offset:
    with cosmos.access(mode) as access:
        return first_offset(access, "now" if mode == "all-versions" else "beginning")


def planned(
    cosmos: ServedCosmos, start: Offset, mode: str, *, limit: int | None = None
) -> Offset:
    """Plan a batch as a query does that was started for it."""
    with cosmos.access(mode) as access:
        return next_offset(access, Offset.of(start.as_text()), limit=limit)


def read(
    cosmos: ServedCosmos, start: Offset, end: Offset, mode: str, *, changes: int = 10**6
) -> list[Row]:
    """Read a batch as a task does that was started for it."""
    with cosmos.access(mode) as access:
        return batch(access, start, end, changes=changes)


def drained(
    access: Access, start: Offset, *, limit: int | None = None, within: Target | None = None
) -> tuple[Offset, list[list[Row]]]:
    found: list[list[Row]] = []
    while (end := next_offset(access, start, limit=limit, within=within)) != start:
        found.append(batch(access, start, end))
        start = end
    return start, found


def ids(rows: list[Row]) -> Counter[str]:
    return Counter(x[3] for x in rows)


def test_a_container_that_was_recreated_while_no_query_ran_is_refused_with_advice(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put(5)
    start = start_of(cosmos, "latest-version")
    end = planned(cosmos, start, "latest-version")
    cosmos.make_anew()
    cosmos.put(30)  # longer than any position of the old one
    with cosmos.access() as access:
        for doing in (
            lambda: next_offset(access, end),
            lambda: batch(access, start, end),
            lambda: target_at(access, end),
        ):
            with pytest.raises(FeedRefused, match=r"recreated.*new checkpoint directory"):
                doing()
        assert len(drained(access, first_offset(access, "beginning"))[1][0]) == 30


@pytest.mark.parametrize("substatus", [1002, 1007])
def test_a_range_that_seems_gone_while_planning_is_asked_again_from_where_it_was(
    cosmos: ServedCosmos, substatus: int
) -> None:
    cosmos.put(20)
    with cosmos.access() as access:
        half = next_offset(access, first_offset(access, "beginning"), limit=10)
        gone = {"effect": "error", "status": 410, "substatus": substatus, "times": 2}
        cosmos.do(cosmos.world.fault(operation="change_feed", **gone))
        end = next_offset(access, half)
        assert end.marks[ZERO].position == '"20"'
        cosmos.do(cosmos.world.fault(operation="change_feed", **gone))
        assert len(batch(access, half, end)) == 10


def test_a_split_that_takes_its_time_is_waited_for(cosmos: ServedCosmos) -> None:
    cosmos.put(20)
    with cosmos.access() as access:
        offset, _ = drained(access, first_offset(access, "beginning"))
        cosmos.put(20, n=1)
        splitting = asyncio.run_coroutine_threadsafe(
            cosmos.world.by_hand.split(range="0", seconds=0.5), cosmos.loop
        )
        time.sleep(0.1)
        _, found = drained(access, offset)
        assert splitting.done()
    assert [len(x) for x in found if x] == [20]


def test_throttling_in_mid_batch_is_waited_out_and_what_lasts_is_told(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put(20)
    throttled = {"operation": "change_feed", "status": 429, "retry_after_ms": 60}
    with cosmos.access(patience=20.0) as access:
        start = first_offset(access, "beginning")
        cosmos.do(cosmos.world.fault(effect="error", times=2, **throttled))
        end = next_offset(access, start, limit=15)
        cosmos.do(cosmos.world.fault(effect="error", times=2, **throttled))
        assert len(batch(access, start, end)) == 15
    with cosmos.access(patience=0.3) as access:
        cosmos.do(cosmos.world.fault(effect="error", **throttled))
        cosmos.requests()
        for doing in (lambda: next_offset(access, end), lambda: batch(access, start, end)):
            with pytest.raises(FeedUnavailable, match="throttles"):
                doing()
        assert cosmos.requests()["change_feed"] <= 8  # each after the time it was told


def test_a_limit_counts_transactions_and_none_is_cut(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put_together("abc", "p")
    cosmos.put_together("defgh", "p")
    cosmos.put_together("ij", "p")
    with cosmos.access() as access:
        start = first_offset(access, "beginning")
        sizes = {n: [len(x) for x in drained(access, start, limit=n)[1]] for n in (1, 2, 3)}
        assert sizes == {1: [3, 5, 2], 2: [8, 2], 3: [10]}
        slices = plan_slices(access, start, next_offset(access, start), changes=1)
        assert [len(rows(access, [x])) for x in slices] == [3, 5, 2]


def test_a_repeated_batch_of_all_versions_is_the_same_whatever_was_written_since(
    cosmos: ServedCosmos,
) -> None:
    start = start_of(cosmos, "all-versions")
    cosmos.put(10)
    cosmos.remove("i3", "k3")
    cosmos.put(10, n=1)
    end = planned(cosmos, start, "all-versions", limit=15)
    before = read(cosmos, start, end, "all-versions")
    cosmos.put(10, n=2)
    cosmos.remove("i4", "k4")
    cosmos.split("0")
    assert read(cosmos, start, end, "all-versions") == before
    assert len(before) == 15


def test_of_the_latest_versions_a_repeated_batch_lacks_what_has_moved_on_and_gets_it_later(
    cosmos: ServedCosmos,
) -> None:
    start = start_of(cosmos, "latest-version")
    cosmos.put(10)
    end = planned(cosmos, start, "latest-version")
    cosmos.put(4, n=1)
    cosmos.remove("i9", "k9")
    assert ids(read(cosmos, start, end, "latest-version")) == Counter(
        f"i{n}" for n in range(4, 9)
    )
    later = planned(cosmos, end, "latest-version")
    assert ids(read(cosmos, end, later, "latest-version")) == Counter(f"i{n}" for n in range(4))


def test_a_replica_that_is_behind_what_was_planned_is_not_taken_for_the_end(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put(10)
    with cosmos.access(patience=0.2) as access:
        start = first_offset(access, "beginning")
        end = next_offset(access, start)
        beyond = end.with_marks({ZERO: end.marks[ZERO].at(Position('"12"'))})
        with pytest.raises(FeedUnavailable, match="ends at '\"10\"', but it was seen at"):
            batch(access, start, beyond)
        cosmos.put(2, n=1)
        assert len(batch(access, end, beyond)) == 2
