"""Random stories: a feed whose ranges come and go, and a query that dies and goes on.

Two kinds of feed live through them: one whose ranges begin anew in those that go on with
their keys, and one in which these take over the position.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Protocol

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import Feed
from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.raw_pages import Rows
from changefeed.log.format.block_format import Columns
from changefeed.pipeline.source.byte_limit import ByteLimit
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import (
    Ahead,
    Target,
    first_offset,
    next_offset,
    plan_slices,
    target_at,
)
from changefeed.pipeline.source.reader import Access
from changefeed.pipeline.source.record_batches import Envelope
from tests.support.pipeline_feeds import memory_access
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

Row = tuple[int, str, int, str, int]
"""Generation, range, sequence, key, and the number of the change."""

MAX_TRANSACTION = 4  # a transaction


class World(Protocol):
    def reader(self) -> Feed: ...
    def access(self) -> AbstractContextManager[Access]: ...
    def append(self, key: str, *bodies: bytes) -> None: ...
    def shake(self, random: Random) -> None: ...


class Anew:
    """A feed in memory, with splits, merges and eras."""

    def __init__(self, random: Random) -> None:
        self._feed = MemoryFeed(random.randint(1, 4))

    def reader(self) -> Feed:
        return self._feed

    @contextmanager
    def access(self) -> Iterator[Access]:
        with memory_access(self._feed) as made:
            yield made

    def append(self, key: str, *bodies: bytes) -> None:
        for x in bodies:
            self._feed.append(key, x)

    def shake(self, random: Random) -> None:
        holders = [x.id for x in self._feed._holders]
        event = random.random()
        if event < 0.5:
            self._feed.split_range(random.choice(holders))
        elif event < 0.8 and len(holders) > 1:
            n = random.randrange(len(holders) - 1)
            self._feed.merge_ranges(holders[n], holders[n + 1])
        else:
            self._feed.begin_era(random.randint(1, 4))


class Shifting:
    """A feed as Cosmos DB has it."""

    def __init__(self, random: Random) -> None:
        self._store = ShiftingStore()
        for _ in range(random.randrange(4)):
            self.shake(random)

    def reader(self) -> Feed:
        return ShiftingReader(self._store)

    @contextmanager
    def access(self) -> Iterator[Access]:
        made = FeedAccess(self._store.open, position_traits(), patience=0.01)
        try:
            yield made
        finally:
            made.close()

    def append(self, key: str, *bodies: bytes) -> None:
        self._store.append(key, *bodies)

    def shake(self, random: Random) -> None:
        living = self._store.physical
        if len(living) > 1 and random.random() < 0.45:
            self._store.merge(random.randrange(len(living) - 1))
        else:
            self._store.split(random.choice(living).id)


class Story:
    """A query over a feed, and what both live through."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.written: list[tuple[str, int]] = []
        self.read: list[Row] = []
        self.within: Target | None = None
        with world.access() as access:
            self.offset = first_offset(access, "beginning")

    def happens(self) -> None:
        """Let something be written and, at times, let ranges come and go."""
        for _ in range(self.random.randrange(8)):
            key, size = (
                f"k{self.random.randrange(10)}",
                self.random.choice([1, 1, 1, MAX_TRANSACTION]),
            )
            numbers = [len(self.written) + n for n in range(size)]
            self.world.append(key, *(str(n).encode() for n in numbers))
            self.written += [(key, n) for n in numbers]
        while self.random.random() < 0.3:
            self.world.shake(self.random)

    def batch(self) -> None:
        """Plan a batch, read it, and perhaps die and read it again from what was logged."""
        limit = self.random.choice([None, 3, 20])
        few = ByteLimit(most=self.random.choice([1, 300]), envelope=Envelope(), measured=2)
        with self.world.access() as access:
            within, begin = self._target(access), Offset.of(self.offset.as_text())
            end = Ahead.of(access, begin, within).end(
                limit=limit,
                bytes_limit=self.random.choice([None, few]),
                within=within,
            )
        if self.random.random() < 0.2:
            return  # it dies before the end was logged: another will be planned
        self.happens()
        rows = self.rows(begin, end)
        if self.random.random() < 0.3:
            self.happens()
            assert self.rows(begin, end) == rows
        assert limit is None or len(rows) <= limit * MAX_TRANSACTION
        self.read += rows
        self.offset = end

    def _target(self, access: Access) -> Target | None:
        """Begin or end a run that reads up to where the feed was when it began."""
        if self.random.random() < 0.3:
            self.within = None if self.within else target_at(access, "now")
        return self.within

    def rows(self, begin: Offset, end: Offset) -> list[Row]:
        """Read as tasks do: each with nothing but its slice."""
        cut = self.random.choice([2, 1000])
        with self.world.access() as access:
            slices = plan_slices(access, begin, end, changes=cut)
        rows: list[Row] = []
        for slice_ in slices:
            with self.world.access() as access:
                for name, changes in access.read(slice_):
                    assert not isinstance(changes, Columns)
                    found = changes if isinstance(changes, Rows) else Rows.of(changes)
                    rows += [
                        (slice_.generation, name, sequence, key, int(bytes(body)))
                        for sequence, key, body in zip(
                            found.sequences, found.keys, found.bodies, strict=True
                        )
                    ]
        return rows

    def to_the_end(self) -> None:
        with self.world.access() as access:
            while (end := next_offset(access, self.offset, limit=20)) != self.offset:
                self.read += self.rows(self.offset, end)
                self.offset = end
