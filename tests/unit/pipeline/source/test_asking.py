"""How often planners ask a feed: each question is a request, and costs request units."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import FeedRange, Page, Position, StartAt
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import first_offset, slices_to, target_at
from changefeed.pipeline.source.spark import SlicePartition, StreamReader
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

pytestmark = pytest.mark.real_time

RANGES = 4
KEYS = [f"k{n}" for n in range(40)]


class Asked(ShiftingReader):
    """Counts what it is asked."""

    def __init__(self, store: ShiftingStore) -> None:
        super().__init__(store)
        self.asked = Counter[str]()

    async def ranges(self) -> Any:
        self.asked["ranges"] += 1
        return await super().ranges()

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        self.asked[str(at)] += at != "beginning"  # which the client knows by itself
        return await super().start(found, at)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        self.asked["read"] += 1
        return await super().read(found, after, limit)

    def told(self) -> dict[str, int]:
        """Return what it was asked since the last time."""
        told, self.asked = self.asked, Counter()
        return dict(+told)


@pytest.fixture
def feed() -> Asked:
    """Make a feed with transactions of three changes in each of its ranges."""
    store = ShiftingStore()
    for n in range(RANGES - 1):
        store.split(store.physical[n // 2 * 2].id)
    for key in KEYS * 3:
        store.append(key, *[b"0"] * 3)
    assert len(store.physical) == RANGES
    return Asked(store)


@pytest.fixture
def access(feed: Asked) -> Iterator[FeedAccess]:
    with closing(FeedAccess(lambda: nullcontext(feed), position_traits())) as access:
        yield access


def test_a_batch_up_to_now_asks_each_range_for_its_end_and_for_one_change(
    feed: Asked, access: FeedAccess
) -> None:
    within, start = target_at(access, "now"), first_offset(access, "beginning")
    slices = [*slices_to(access, start, within)]
    assert feed.told() == {"ranges": 2, "now": RANGES, "read": RANGES}
    assert sum(x.changes for x in slices) == 3 * 3 * len(KEYS)


def test_a_stream_up_to_now_asks_each_range_once_in_a_batch_and_where_it_is_done_no_more(
    feed: Asked, access: FeedAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Options, "opened", lambda _: access)
    one = StreamReader(Options.of({"feed": "memory:", "maxChangesPerBatch": "50"}))
    one.prepareForTriggerAvailableNow()
    assert feed.told() == {"ranges": 1, "now": RANGES}
    limit = one.getDefaultReadLimit()
    start = one.latestOffset(one.initialOffset(), limit)
    assert feed.told() == {"ranges": 1, "read": RANGES}
    asked = []
    while (end := one.latestOffset(start, limit)) != start:
        one.reportLatestOffset()
        (task,) = one.partitions(start, end)  # it knows that they are small
        assert isinstance(task, SlicePartition)
        assert sum(x.changes for x in task.slices) <= 3 * 50
        asked.append(feed.told())
        start = end
    assert asked == [{}, {"read": RANGES}, {"read": RANGES}], "what was seen is not asked again"
    assert feed.told() == {}, "all is read"
