"""What the suites of feeds are given, and how they read."""

import enum
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

import pytest

from changefeed.feeds.feed import (
    Change,
    Child,
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.log.records import Record

RANGES = 3
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YEAR_US = 1_767_225_600_000_000


class FeedAbility(enum.Enum):
    """What is not in every feed's power; the tests that need it are skipped where it is not."""

    RECORDS_AS_GIVEN = "operations, images and commit times are the producer's"
    LARGE = "a change may have any size"
    ENDED_ARE_READ = "a range that has ended can still be read"


class FeedHarness(Protocol):
    """A fresh feed with three empty ranges, and what changes it.

    The commit time of what gives none is the beginning of 2026, UTC, where the feed has
    ``RECORDS_AS_GIVEN``.
    """

    @property
    def feed(self) -> Feed: ...

    @property
    def can(self) -> frozenset[FeedAbility]:
        """What the feed is able to do, of what not every feed is."""
        ...

    async def append(self, records: Sequence[Record]) -> None:
        """Append changes, each to the open range of its key."""
        ...

    async def split(self, range_id: RangeId) -> None:
        """End a range; two fresh ones go on with its keys. Others may end with it."""
        ...

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        """Merge what ``split`` has made of one range."""
        ...


def needs(given: FeedHarness, trait: FeedAbility) -> None:
    if trait not in given.can:
        pytest.skip(f"not this feed: {trait.value}")


def numbered(count: int, begin: int = 0) -> list[Record]:
    return [Record(key=f"key-{n}", body=b"%d" % n) for n in range(begin, begin + count)]


async def pages_from(
    feed: Feed, found: FeedRange, after: Position, limit: int
) -> tuple[list[Change], Position]:
    """Read until there is nothing for now."""
    changes: list[Change] = []
    while (page := await feed.read(found, after, limit)).changes:
        assert len(page.changes) <= limit
        assert page.position == feed.position_after(page.changes[-1])
        assert not changes or page.changes[0].sequence > changes[-1].sequence
        changes += page.changes
        after = page.position
    return changes, page.position


async def whole(feed: Feed, found: FeedRange, limit: int = 1000) -> list[Change]:
    beginning = await feed.start(found, "beginning")
    changes, _ = await pages_from(feed, found, beginning, limit)
    return changes


async def busiest(feed: Feed) -> FeedRange:
    """Return the range with most changes."""
    counts = {x: len(await whole(feed, x)) for x in await feed.ranges()}
    return max(counts, key=lambda x: counts[x])


async def ended(feed: Feed, found: FeedRange, after: Position) -> tuple[Child, ...]:
    """Read a range to its end, which must have children."""
    with pytest.raises(RangeEnded) as caught:
        await pages_from(feed, found, after, 1000)
    assert caught.value.range_id == found.id
    return caught.value.children


async def to_its_end(
    feed: Feed, found: FeedRange, after: Position
) -> tuple[list[Change], tuple[Child, ...]]:
    """Read what an ended range still gives, and what goes on with its keys."""
    changes: list[Change] = []
    while True:
        try:
            page = await feed.read(found, after, 7)
        except RangeEnded as ended:
            return changes, ended.children
        assert page.changes
        changes += page.changes
        after = page.position


async def everything(feed: Feed, found: FeedRange) -> list[Change]:
    """Return all that there is of a range now, whether it has ended or not."""
    changes: list[Change] = []
    after = await feed.start(found, "beginning")
    with suppress(RangeEnded):
        while (page := await feed.read(found, after, 1000)).changes:
            changes += page.changes
            after = page.position
    return changes
