"""Our feeds keep the contract. A new feed is a harness, and one more line in FEEDS."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.feed import Feed, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.log.catalog.transitions import with_merge, with_split
from changefeed.log.directory.directory import COLLECTION, create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from changefeed.testing import feed_suite, many_ranges_suite, parts_suite, succession_suite
from changefeed.testing.contracts import suite_of
from changefeed.testing.feed_harness import (
    NEW_YEAR,
    NEW_YEAR_US,
    RANGES,
    FeedAbility,
    FeedHarness,
)
from tests.support.broker_cluster import through_brokers
from tests.support.cosmos_feeds import in_cosmos
from tests.support.thirdparty import importable, site_with_shelf


class InMemory:
    can = frozenset(FeedAbility)

    def __init__(self) -> None:
        self.feed = MemoryFeed(RANGES, clock=NEW_YEAR.timestamp)

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self.feed.append(
                x.key,
                x.body,
                id=x.id,
                operation=x.operation,
                previous=x.previous,
                committed_us=x.committed_us,
            )

    async def split(self, range_id: RangeId) -> None:
        self.feed.split_range(range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        self.feed.merge_ranges(*range_ids)


class InEventLog:
    can = frozenset(FeedAbility)

    def __init__(self, path: Path, feed: EventLog, writer: EventLogWriter) -> None:
        self.feed = feed
        self._path = path
        self._writer = writer

    async def append(self, records: Sequence[Record]) -> None:
        await self._writer.send_many(records)

    async def split(self, range_id: RangeId) -> None:
        await self._writer.begin_era(lambda x: with_split(x, COLLECTION, range_id))

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        await self._writer.begin_era(lambda x: with_merge(x, COLLECTION, range_ids[0]))


class InHalfCompacted(InEventLog):
    """Of every append the first half is in segments, and the second is not."""

    async def append(self, records: Sequence[Record]) -> None:
        half = (len(records) + 1) // 2
        await self._writer.send_many(records[:half])
        await self._writer.compact()
        await self._writer.send_many(records[half:])


@asynccontextmanager
async def in_memory(_path: Path) -> AsyncIterator[FeedHarness]:
    yield InMemory()


@asynccontextmanager
async def in_event_log(
    path: Path, kind: type[InEventLog] = InEventLog
) -> AsyncIterator[FeedHarness]:
    await create_log(path, RANGES)
    async with (
        EventLogWriter.open(path, clock=NEW_YEAR.timestamp) as writer,
        EventLog.open(path) as log,
    ):
        yield kind(path, log, writer)


@asynccontextmanager
async def in_emulator(_path: Path) -> AsyncIterator[FeedHarness]:
    async with in_cosmos(RANGES) as harness:
        yield harness


class InShelf:
    """A feed of another package; its journal is written as any producer would."""

    can = frozenset(FeedAbility)

    def __init__(self, journal: Path, feed: Feed) -> None:
        self.feed = feed
        self._journal = journal

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self._write(
                append={
                    "key": x.key,
                    "body": x.body.decode(),
                    "id": x.id,
                    "operation": x.operation,
                    "previous": None if x.previous is None else x.previous.decode(),
                    "committed_us": x.committed_us or NEW_YEAR_US,
                }
            )

    async def split(self, range_id: RangeId) -> None:
        self._write(split=range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        self._write(merge=range_ids)

    def _write(self, **entry: Any) -> None:
        with self._journal.open("ab") as opened:
            opened.write(msgspec.json.encode(entry) + b"\n")


@asynccontextmanager
async def in_shelf(path: Path) -> AsyncIterator[FeedHarness]:
    await asyncio.to_thread(path.write_text, f'{{"ranges": {RANGES}}}\n')
    with importable(site_with_shelf(path.with_name("site"))):
        async with open_feed(f"shelf:{path}") as feed:
            yield InShelf(path, feed)


@asynccontextmanager
async def in_brokers(_path: Path) -> AsyncIterator[FeedHarness]:
    async with through_brokers(RANGES) as harness:
        yield harness


FEEDS = [
    pytest.param(in_memory, id="memory"),
    pytest.param(in_event_log, id="event-log"),
    pytest.param(partial(in_event_log, kind=InHalfCompacted), id="half-compacted-event-log"),
    pytest.param(in_emulator, id="cosmos"),
    pytest.param(in_brokers, id="brokers"),
    pytest.param(in_shelf, id="third-party"),
]


@pytest.fixture(params=FEEDS)
async def given(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FeedHarness]:
    make: Callable[[Path], AbstractAsyncContextManager[FeedHarness]] = request.param
    async with make(tmp_path / "feed") as harness:
        yield harness


globals().update(suite_of(feed_suite, many_ranges_suite, parts_suite, succession_suite))


async def test_no_other_feed_has_the_identity_of_a_feed(
    given: FeedHarness, tmp_path: Path
) -> None:
    for make in (in_memory, in_event_log):
        async with make(tmp_path / "other") as other:
            assert other.feed.identity != given.feed.identity
