"""Pages and slices of a feed that come in while others are made into columns."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.cosmos.positions import position
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.raw_pages import RawPage, Rows
from changefeed.pipeline.source import kept_access
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import Ahead, first_offset
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.spark import read_slices
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

pytestmark = pytest.mark.real_time

PATIENCE = 10.0
PAGE = 5


class Pages(ShiftingReader):
    """Gives small pages, and keeps a list of what it was asked for and what it has cut, but
    for the single changes of planners.
    """

    def __init__(self, store: ShiftingStore) -> None:
        super().__init__(store)
        self.did: list[str] = []
        self.limits: list[int] = []
        self.waits_for: dict[str, str] = {}
        """What is not cut before something else is asked for."""

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        if limit > 1:
            self.did.append(f"fetch {after}")
            self.limits.append(limit)
        return await super().fetch(found, after, min(PAGE, limit))

    def rows(self, range_id: RangeId, page: RawPage) -> Rows:
        cut = f"cut {page.position}"
        ahead, deadline = self.waits_for.get(cut), time.monotonic() + PATIENCE
        while ahead is not None and ahead not in self.did:
            assert time.monotonic() < deadline, f"no {ahead} ahead, only {self.did}"
            time.sleep(0.001)
        self.did.append(cut)
        return super().rows(range_id, page)


@contextmanager
def opened(feed: ShiftingReader) -> Iterator[FeedAccess]:
    access = FeedAccess(lambda: nullcontext(feed), position_traits(), patience=0.2)
    with closing(access):
        yield access


def planned(access: FeedAccess, limit: int | None = None) -> Slice:
    start = first_offset(access, "beginning")
    ahead = Ahead.of(access, start)
    (slice_,) = ahead.slices(ahead.end(limit=limit), changes=1000)
    return slice_


def a_store(changes: int) -> ShiftingStore:
    store = ShiftingStore()
    for n in range(changes):
        store.append("k", b"%d" % n)
    return store


def test_a_page_is_on_its_way_while_the_one_before_is_cut() -> None:
    feed = Pages(a_store(12))
    feed.waits_for = {f'cut "{n}"': f'fetch "{n}"' for n in (5, 10)}
    with opened(feed) as access:
        assert [len(x) for _, x in access.read(planned(access))] == [5, 5, 2]
    assert [x for x in feed.did if "fetch" in x] == [f'fetch "{n}"' for n in (0, 5, 10)]
    assert [x for x in feed.did if "cut" in x] == [f'cut "{n}"' for n in (5, 10, 12)]


def test_pages_are_as_large_as_the_transactions_that_were_seen() -> None:
    store = ShiftingStore()
    for _ in range(10):
        store.append("k", *[b"0"] * 3)
    feed = Pages(store)
    with opened(feed) as access:
        slice_ = planned(access, 8)
        for given in (slice_, replace(slice_, each=None)):
            assert sum(len(x) for _, x in access.read(given)) == 24
    # Two transactions are in a page of five and more.
    assert feed.limits[:2] == [24, 18]
    assert feed.limits[-4:-2] == [8, 18], "the planner has not seen them"


Task = Callable[..., Generator[pa.RecordBatch, None, None]]


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    """Return what reads a feed in slices between some edges, as a task does."""

    def begin(feed: Pages, *edges: int) -> Iterator[pa.RecordBatch]:
        access = partial(FeedAccess, lambda: nullcontext(feed), position_traits(), patience=0.2)
        monkeypatch.setattr(kept_access, "open_access", lambda *_, **__: access())
        ends = [*map(position, edges)]
        slices = [
            Slice(range_id=RangeId("0"), start=a, end=b, high="FF") for a, b in pairwise(ends)
        ]
        return read_slices(Options.of({"feed": "cosmos:db/c"}), slices)

    yield begin  # type: ignore[misc] # it is a generator
    kept_access.close_kept()


def test_one_slice_is_on_its_way_while_the_one_before_is_cut_and_no_more(task: Task) -> None:
    feed = Pages(a_store(12))
    feed.waits_for = {f'cut "{n}"': f'fetch "{n}"' for n in (3, 6, 9)}
    found = task(feed, 0, 3, 6, 9, 12)
    assert next(found).num_rows == 3
    assert 'fetch "6"' not in feed.did, "two slices ahead"
    assert [x.num_rows for x in found] == [3, 3, 3]
    assert [x for x in feed.did if "fetch" in x] == [f'fetch "{n}"' for n in (0, 3, 6, 9)]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "left"])
def test_what_is_asked_for_ahead_fails_behind_all_changes_before_it_and_ends_with_the_task(
    *, task: Task, refused: bool
) -> None:
    class Odd(Pages):
        async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
            if after != position(7):
                return await super().fetch(found, after, limit)
            self.did.append("asked")
            try:
                if refused:
                    raise FeedRefused("no right to read")
                return await asyncio.Future[RawPage]()
            finally:
                self.did.append("over")

    before, feed = threading.active_count(), Odd(a_store(12))
    feed.waits_for = {'cut "5"': "asked"}
    found = task(feed, 0, 7, 12)
    assert [next(found).num_rows, next(found).num_rows] == [5, 2]
    if refused:
        with pytest.raises(FeedRefused, match="no right"):
            next(found)
    found.close()
    assert "over" in feed.did
    assert threading.active_count() == before


def test_an_answer_that_does_not_get_further_is_asked_again_and_not_for_ever() -> None:
    class Stuck(Pages):
        async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
            page = await super().fetch(found, after, limit)
            return replace(page, position=after)

    feed = Stuck(a_store(12))
    with opened(feed) as access:
        found = [y for _, x in access.read(planned(access)) for y in x]  # type: ignore[union-attr]
    assert [int(x.body) for x in found] == [*range(12)]  # by the contract of feeds
