"""Pages of a feed that come in while others are made into columns."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import pytest

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.raw_pages import RawPage, Rows
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.planning import Ahead, first_offset
from changefeed.pipeline.source.reader import Slice
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

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        if limit > 1:
            self.did.append(f"fetch {after}")
            self.limits.append(limit)
        return await super().fetch(found, after, min(PAGE, limit))

    def rows(self, range_id: RangeId, page: RawPage) -> Rows:
        self.did.append(f"cut {page.position}")
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


def test_a_page_is_on_its_way_while_the_one_before_is_cut_and_used() -> None:
    feed = Pages(a_store(12))
    with opened(feed) as access:
        slice_ = planned(access)
        pages = access.read(slice_)
        next(pages)
        deadline = time.monotonic() + PATIENCE
        while 'fetch "5"' not in feed.did:
            assert time.monotonic() < deadline, "nothing was asked for ahead"
        found = [next(pages), next(pages)]
        assert [len(x) for _, x in found] == [5, 2]
        assert next(pages, None) is None
    assert [x for x in feed.did if "fetch" in x] == [f'fetch "{n}"' for n in (0, 5, 10)]
    assert [x for x in feed.did if "cut" in x] == [f'cut "{n}"' for n in (5, 10, 12)]


def test_of_a_batch_that_ends_before_its_range_no_more_is_asked_for_than_it_has() -> None:
    feed = Pages(a_store(12))
    with opened(feed) as access:
        assert [len(x) for _, x in access.read(planned(access, 4))] == [4]
    assert feed.limits == [4]


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


def test_an_answer_that_does_not_get_further_is_asked_again_and_not_for_ever() -> None:
    class Stuck(Pages):
        async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
            page = await super().fetch(found, after, limit)
            return replace(page, position=after)

    feed = Stuck(a_store(12))
    with opened(feed) as access:
        found = [y for _, x in access.read(planned(access)) for y in x]  # type: ignore[union-attr]
    assert [int(x.body) for x in found] == [*range(12)]  # by the contract of feeds
