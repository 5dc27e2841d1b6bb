"""News of many ranges, from a few brokers that hold the question."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, cast

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.log.ids import part_id, position
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionNews
from changefeed.log.reading.ends import NewsReader
from changefeed.log.reading.stored_collection import StoredCollection
from changefeed.runtime.calls import in_time
from tests.support.brokers import first_broker
from tests.support.looking import now
from tests.support.model_cluster import IDENTITY, ModelCluster
from tests.support.watched_store import Call, WatchedStore

Asked = tuple[str, Mapping[RangeId, int], float]


class HoldingBrokers:
    """Each knows how far its own partitions are. Some are slow: they take half a second."""

    def __init__(self, brokers: int) -> None:
        self.cluster = ModelCluster(12, brokers, Random(7))
        self.lasts: dict[RangeId, int] = {}
        self.asked: list[Asked] = []
        self.waiting = 0
        self.slow: set[str] = set()
        self.away = False
        self.routes: Routes
        self._moved = asyncio.Event()

    def move(self, name: RangeId, last: int) -> None:
        self.lasts[name] = last
        self._moved.set()

    async def news(
        self, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, PartitionNews]:
        urls = self.routes.to_read(self.routes.partition(min(after)))
        self.asked.append((urls[0], after, wait))
        self.waiting += 1
        try:
            await asyncio.sleep(0.5 if urls[0] in self.slow else 0)
            if self.away:
                raise FeedUnavailable("no broker answers")
            async with asyncio.timeout(wait or None):
                while not (found := self._found(after)) and wait:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return {}
        finally:
            self.waiting -= 1
        return found

    def _found(self, after: Mapping[RangeId, int]) -> Mapping[RangeId, PartitionNews]:
        ends = {name: self.lasts.get(name, 0) for name in after}
        return {x: PartitionNews(last=last) for x, last in ends.items() if last != after[x]}


def at(names: Iterable[RangeId], sequence: int = 0) -> dict[FeedRange, Position]:
    return {FeedRange(id=x): position(IDENTITY, sequence) for x in names}


def names_of(routes: Routes) -> Sequence[RangeId]:
    return [x.id for x in routes.ranges]


async def given(brokers: int) -> tuple[HoldingBrokers, NewsReader, Routes]:
    client = HoldingBrokers(brokers)
    client.routes = await client.cluster.routes()
    return client, NewsReader(cast("Any", client), waits=True), client.routes


async def test_each_broker_is_asked_once_for_all_that_it_writes_and_holds_the_question() -> (
    None
):
    client, ends, routes = await given(3)
    began = now()
    news = asyncio.create_task(cast("Any", ends.news(routes, at(names_of(routes)))))
    await asyncio.sleep(5)
    waits = [x for x in client.asked if x[2]]
    assert len(waits) == 3
    assert sorted(name for _, after, _ in waits for name in after) == sorted(names_of(routes))
    client.move(min(names_of(routes)), 4)
    assert await news == [min(names_of(routes))]
    assert now() == began + 5
    assert client.waiting == 0


async def test_without_news_the_question_ends_after_a_while() -> None:
    client, ends, routes = await given(1)
    began = now()
    assert await ends.news(routes, at(names_of(routes))) == []
    assert now() == began + 10
    assert [x[2] for x in client.asked] == [10]


async def test_what_is_closed_or_not_known_is_named_at_once_and_with_it_what_has_news() -> None:
    client, ends, _ = await given(1)
    client.cluster.begin_era(1)
    routes = client.routes = await client.cluster.routes()
    closed, open_ = (
        [x.id for x in routes.partitions.all() if routes.is_open(x) == wanted]
        for wanted in (False, True)
    )
    client.move(open_[0], 3)
    unknown, wrong = RangeId("unknown"), part_id(open_[1], 0, 256)
    positions = {
        **at(open_),
        **at(closed[:1]),
        **at([unknown, wrong]),
        FeedRange(id=open_[2]): Position("odd"),
    }
    expected = {open_[0], closed[0], unknown, wrong, open_[2]}
    assert {*await ends.news(routes, positions)} == expected
    assert [{*after} for _, after, _ in client.asked] == [{*open_} - {open_[2]}]
    assert await ends.lags(routes, at([*closed, open_[0]])) == {
        **dict.fromkeys(closed, 0),
        open_[0]: 3,
    }


@pytest.mark.parametrize("asked", ["news", "lags"])
async def test_brokers_none_of_which_answers_are_unavailable_and_cancel_nobody(
    asked: str,
) -> None:
    client, ends, routes = await given(3)
    client.away = True
    client.slow.add(routes.to_read(routes.partition(min(names_of(routes))))[0])
    question = getattr(ends, asked)(routes, at(names_of(routes)))
    with pytest.raises(FeedUnavailable, match="no broker answers"):
        await in_time(question, 60, who="it", name=asked, unavailable=FeedUnavailable)
    assert client.waiting == 0


async def test_a_row_without_records_is_looked_at_once_for_all_that_lie_in_it() -> None:
    store, looks = WatchedStore(), list[str]()

    async def note(_: Call, key: str) -> None:
        looks.extend([key] if key.startswith("wal/") else [])

    async with first_broker(store, parts=12):
        feed = await StoredCollection.open(store, "orders")
        names = [x.id for x in feed.ranges.all()]
        store.before = note
        counts = []
        for some in (names[:1], names[:1], names):
            looks.clear()
            assert await feed.news(dict.fromkeys(some, 0), wait=0) == {}
            counts.append(len(looks))
    assert len(names) == 12
    assert counts[1:] == [1, 1]
