"""Where batches end, told over feeds in memory: nothing here needs Spark."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import Change, FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.lineage import narrowed
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.planning import (
    fair_shares,
    first_offset,
    next_offset,
    plan_slices,
)
from changefeed.runtime.errors import UserError
from tests.support.pipeline_feeds import Name, drained, memory_access, names
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

R0, R1, R2, R3 = (RangeId(f"r{n}") for n in range(4))


def filled(feed: MemoryFeed, range_id: RangeId, count: int) -> list[Change]:
    return [feed.append(f"k{n}", range_id=range_id) for n in range(count)]


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(0, 1000), max_size=8),
    st.integers(1, 3000),
)
def test_a_limit_is_shared_exactly_and_no_range_gets_more_than_waits(
    lags: dict[str, int], limit: int
) -> None:
    shares = fair_shares(lags, limit)
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(0 < share <= lags[name] for name, share in shares.items())
    if limit >= sum(lag > 0 for lag in lags.values()):
        assert shares.keys() == {name for name, lag in lags.items() if lag > 0}


def test_with_fewer_changes_than_ranges_that_wait_these_take_turns_and_none_starves() -> None:
    lags = {"c": 5, "a": 5, "b": 9, "d": 0}
    turns = [list(fair_shares(lags, 2, turn)) for turn in range(4)]
    assert turns == [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]]
    feed = MemoryFeed(3)
    filled(feed, R1, 3)
    filled(feed, R2, 3)
    with memory_access(feed) as access:
        offset, read = first_offset(access, "beginning"), set[Name]()
        for _ in range(40):
            filled(feed, R0, 5)  # always the longest queue
            end = next_offset(access, offset, limit=1)
            read |= {
                x
                for slice_ in plan_slices(access, offset, end, changes=9)
                for x in names(access, slice_)
            }
            offset = end
    assert {(R1, 3), (R2, 3), (R0, 10)} <= read


def test_offsets_are_the_same_text_whatever_the_order_they_were_made_in() -> None:
    one, two = Mark(position=Position("1")), Mark(position=Position("2"))
    text = '{"r0":["1",false,0],"r1":["2",false,0]}'
    assert Offset(marks={R1: two, R0: one}).as_text() == text
    assert Offset.of(text) == Offset(marks={R0: one, R1: two})
    bounds = Mark(position=Position("1"), ended=True, generation=3, low="", high="FF")
    assert Offset.of(Offset(marks={R0: bounds}).as_json()) == Offset(marks={R0: bounds})


@pytest.mark.parametrize("text", ["[]", "{", '{"r0": 5}', '{"r0": ["1"]}', '{"r0": [1, 0, 0]}'])
def test_the_offset_of_another_source_is_refused_with_advice(text: str) -> None:
    with pytest.raises(UserError, match="checkpoint directory"):
        Offset.of(text)


class Meanwhile:
    """A feed of a store in which something happens once, when a method has answered."""

    def __init__(self, store: ShiftingStore, method: str, happens: Callable[[], None]) -> None:
        self._feed = ShiftingReader(store)
        self._method = method
        self._happens: Callable[[], None] | None = happens

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._feed, name)
        if name != self._method or self._happens is None:
            return found

        async def and_then(*args: Any) -> Any:
            answer = await found(*args)
            if self._happens is not None:
                self._happens()
                self._happens = None
            return answer

        return and_then


@contextmanager
def shifting_access(feed: Any) -> Iterator[FeedAccess]:
    access = FeedAccess(lambda: nullcontext(feed), position_traits(), patience=0.01)
    with closing(access):
        yield access


def test_a_range_that_splits_while_the_start_is_resolved_is_listed_again() -> None:
    store = ShiftingStore()
    store.append("k", b"1")
    feed = Meanwhile(store, "ranges", lambda: store.split(RangeId("0")))
    with shifting_access(feed) as access:
        assert first_offset(access, "now").marks.keys() == {"1", "2"}


@pytest.mark.parametrize("limit", [None, 1000, 2])
def test_a_range_that_is_split_while_a_batch_is_planned_is_left_where_it_is(
    limit: int | None,
) -> None:
    store = ShiftingStore()
    for n in range(5):
        store.append(f"k{n}", b"%d" % n)
    feed = Meanwhile(store, "read", lambda: store.split(RangeId("0")))
    with shifting_access(feed) as access:
        start = first_offset(access, "beginning")
        assert next_offset(access, start, limit=limit) == start
        end, read = drained(access, start, limit=limit)
    assert sum(map(len, read)) == 5
    assert {x.generation for x in end.marks.values()} == {1}


class Counting(ShiftingReader):
    """Sums up how many changes it was asked for."""

    asked = 0

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        self.asked += limit
        return await super().read(found, after, limit)


def test_a_limited_batch_is_planned_without_reading_it_and_skips_what_is_not_there() -> None:
    store = ShiftingStore()
    for n in range(500):
        store.append("k", b"%d" % n)
    del store.items[RangeId("0")][:100]  # written again since
    feed = Counting(store)
    with shifting_access(feed) as access:
        start = first_offset(access, "beginning")
        end = next_offset(access, start, limit=200)
        assert feed.asked == 1
        assert end.marks[RangeId("0")].position == '"300"'
        repeated = plan_slices(access, start, end, changes=200)  # without what was seen
        assert [x.changes for x in repeated] == [300]
        _, read = drained(access, start, limit=200)
    assert [len(x) for x in read] == [200, 200]


def test_descendants_of_named_ranges_are_wanted_through_many_generations() -> None:
    feed = MemoryFeed(3)
    one, other = feed.split_range(R1)
    grandchild = feed.merge_ranges(other.id, R2)
    with memory_access(feed) as access:
        ranges = access.ranges()
    assert [x.id for x in narrowed(ranges, [R1])] == [R1, one.id, other.id, grandchild.id]
    assert [x.id for x in narrowed(ranges, [one.id])] == [one.id]
    assert narrowed(ranges, []) == ranges
    with pytest.raises(UserError, match="'r9'"):
        narrowed(ranges, [R1, RangeId("r9")])
