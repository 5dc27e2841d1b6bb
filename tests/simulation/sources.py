"""The feeds a world may have: what is written to them, and what becomes of their ranges."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, Protocol

from changefeed.feeds import memory_parts
from changefeed.feeds.cosmos.positions import _PLACE_BITS, lsn_of
from changefeed.feeds.cosmos.topology import HIGHEST
from changefeed.feeds.feed import Change, FeedRange, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore, hash_of

FeedKind = Literal["memory", "cosmos"]
Number = int
"""What names a change, wherever it is read."""


class Source(Protocol):
    """A feed, seen by whoever knows all of it."""

    def reader(self) -> object:
        """Return the feed as one process knows it."""
        ...

    def append(self, key: str, number: Number) -> None: ...

    def holds(self, found: FeedRange, key: str) -> bool:
        """Say whether a key is one of a range, by its bounds."""
        ...

    def open_ranges(self) -> Sequence[FeedRange]:
        """Return the ranges that have not ended."""
        ...

    def is_read_by(self, owned: Sequence[FeedRange]) -> bool:
        """Say whether every key is read by one of these, and only by one."""
        ...

    def change_ranges(self, random: Random, tell: Callable[[str], None]) -> None:
        """Let some ranges end, and others go on with their keys."""
        ...

    def end(self, range_id: RangeId, tell: Callable[[str], None]) -> None:
        """Split this range, if it is open."""
        ...

    def place(self, position: Position) -> int:
        """Return a number that grows along a range."""
        ...

    def between(self, found: FeedRange, first: int, last: int) -> Sequence[Number]:
        """Return the changes that a reader of a range passes from one place to another."""
        ...

    def transaction(self, change: Change) -> int:
        """Return what the changes of one transaction share: no position is within it."""
        ...


class MemorySource:
    """Ranges are read to their ends, and those that go on with their keys begin anew."""

    def __init__(
        self, random: Random, clock: Callable[[], float], *, many: bool = False
    ) -> None:
        ranges = random.choice([1, 2, 3, 5, 8, 12])
        self._feed = MemoryFeed(random.choice([32, 64, 128]) if many else ranges, clock=clock)
        self._in_range: dict[RangeId, list[tuple[str, Number]]] = defaultdict(list)

    def reader(self) -> object:
        return self._feed

    def append(self, key: str, number: Number) -> None:
        change = self._feed.append(key, b"%d" % number)
        place = memory_parts.bound(memory_parts.hash_of(key))
        self._in_range[change.range_id].append((place, number))

    def holds(self, found: FeedRange, key: str) -> bool:
        return found.low <= memory_parts.bound(memory_parts.hash_of(key)) < found.high

    def open_ranges(self) -> Sequence[FeedRange]:
        return [
            x.seen_from_outside() for x in self._feed._ranges.values() if x.children is None
        ]

    def is_read_by(self, owned: Sequence[FeedRange]) -> bool:
        """A range is read by itself, or by parts of it without a gap."""
        parts: dict[RangeId, list[tuple[str, str]]] = defaultdict(list)
        for x in owned:
            parts[x.whole].append((x.low, x.high))
        open_ranges = {x.id: x for x in self.open_ranges()}
        return parts.keys() == open_ranges.keys() and all(
            [*(low for low, _ in sorted(found)), open_ranges[name].high]
            == [open_ranges[name].low, *(high for _, high in sorted(found))]
            for name, found in parts.items()
        )

    def change_ranges(self, random: Random, tell: Callable[[str], None]) -> None:
        open_ranges = self.open_ranges()
        chosen = random.choice(open_ranges)
        kind = random.random()
        if kind < 0.6 and len(open_ranges) < 16:
            tell(f"split {chosen.id}")
            self._feed.split_range(chosen.id)
        elif kind < 0.9:
            after = next((x for x in open_ranges if x.low == chosen.high), None)
            if after is not None:
                tell(f"merge {chosen.id} and {after.id}")
                self._feed.merge_ranges(chosen.id, after.id)
        else:
            tell("a new era")
            self._feed.begin_era(random.choice([1, 3, 6]))

    def end(self, range_id: RangeId, tell: Callable[[str], None]) -> None:
        if range_id in {x.id for x in self.open_ranges()}:
            tell(f"split {range_id}")
            self._feed.split_range(range_id)

    def place(self, position: Position) -> int:
        return int(position)

    def between(self, found: FeedRange, first: int, last: int) -> Sequence[Number]:
        passed = self._in_range[found.whole][first:last]
        return [number for place, number in passed if found.low <= place < found.high]

    def transaction(self, change: Change) -> int:
        return change.sequence


class CosmosSource:
    """Ranges end where their readers stand, and those that go on take over the position.

    What goes on with a range is whoever holds its keys when that is asked. ``merges`` says
    whether a range may come to life again, as what it went on in is merged.
    """

    def __init__(self, random: Random, clock: Callable[[], float]) -> None:
        self._store = ShiftingStore(clock=clock)
        self._by_key: dict[str, list[tuple[int, Number]]] = defaultdict(list)
        self.merges = True
        for _ in range(random.randrange(5)):
            self.change_ranges(random, lambda _: None)

    def reader(self) -> object:
        return ShiftingReader(self._store)

    def append(self, key: str, number: Number) -> None:
        lsn = self._store.append(key, b"%d" % number)
        self._by_key[key].append((lsn, number))

    def holds(self, found: FeedRange, key: str) -> bool:
        return found.low <= hash_of(key) < found.high

    def open_ranges(self) -> Sequence[FeedRange]:
        return self._store.physical

    def is_read_by(self, owned: Sequence[FeedRange]) -> bool:
        """Halves of what was merged are read on alone, as parts of a range."""
        bounds = sorted((x.low, x.high) for x in owned)
        return ["", *(high for _, high in bounds)] == [*(low for low, _ in bounds), HIGHEST]

    def change_ranges(self, random: Random, tell: Callable[[str], None]) -> None:
        physical = self._store.physical
        if not self.merges and len(physical) > 11:
            return
        merge = len(physical) > 1 and (random.random() < 0.45 or len(physical) > 11)
        if merge and self.merges:
            first = random.randrange(len(physical) - 1)
            tell(f"merge {physical[first].id} and {physical[first + 1].id}")
            self._store.merge(first)
        else:
            chosen = random.choice(physical).id
            tell(f"split {chosen}")
            self._store.split(chosen)

    def end(self, range_id: RangeId, tell: Callable[[str], None]) -> None:
        if range_id in {x.id for x in self.open_ranges()}:
            tell(f"split {range_id}")
            self._store.split(range_id)

    def place(self, position: Position) -> int:
        lsn = lsn_of(position)
        assert lsn is not None, "every position of this feed is an LSN"
        return lsn

    def between(self, found: FeedRange, first: int, last: int) -> Sequence[Number]:
        return [
            number
            for key, changes in self._by_key.items()
            if self.holds(found, key)
            for lsn, number in changes[bisect_right(changes, (first, 1 << 62)) :]
            if lsn <= last
        ]

    def transaction(self, change: Change) -> int:
        return change.sequence >> _PLACE_BITS
