"""A container of Cosmos DB as far as its ranges go, in memory: for thousands of stories.

Its ranges end where their readers stand, as soon as they are split or merged, and what goes
on takes over the position. A transaction has one LSN; children go on with those of their
parent. It keeps every version.
"""

import asyncio
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import msgspec

from changefeed.feeds.cosmos.positions import (
    BEGINNING,
    lsn_of,
    position,
    position_after,
    sequences,
)
from changefeed.feeds.cosmos.topology import Place, Topology, part_between
from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.feed import (
    Change,
    Child,
    Feed,
    FeedRange,
    Operation,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.raw_pages import RawPage, Rows
from changefeed.feeds.timestamps import start_us

_HASHES = 255


@cache
def hash_of(key: str) -> str:
    """Return the hash of a key, as ranges are bounded."""
    return f"{zlib.crc32(key.encode()) % _HASHES:02X}"


@dataclass(frozen=True, kw_only=True)
class _Item:
    lsn: int
    hash: str
    key: str
    body: bytes
    second: int


@dataclass(kw_only=True)
class ShiftingStore:
    """What the readers share. The methods are those of producers and of the service. Times are
    whole seconds of ``clock``.
    """

    physical: list[FeedRange] = field(
        default_factory=lambda: [FeedRange(id=RangeId("0"), low="", high="FF")]
    )
    lsns: dict[RangeId, int] = field(default_factory=lambda: {RangeId("0"): 0})
    items: dict[RangeId, list[_Item]] = field(default_factory=lambda: {RangeId("0"): []})
    identity: str = "shifting"
    clock: Callable[[], float] = lambda: 0.0

    def open(self) -> AbstractAsyncContextManager[Feed]:
        """Return a feed that remembers nothing yet."""
        return nullcontext(ShiftingReader(self))

    def append(self, key: str, *bodies: bytes) -> int:
        """Add changes of one key in one transaction; return its LSN."""
        place = hash_of(key)
        (owned,) = (x for x in self.physical if x.low <= place < x.high)
        self.lsns[owned.id] += 1
        self.items[owned.id] += [
            _Item(
                lsn=self.lsns[owned.id], hash=place, key=key, body=x, second=int(self.clock())
            )
            for x in bodies
        ]
        return self.lsns[owned.id]

    def split(self, name: RangeId) -> None:
        """Cut a range in the middle, unless it has only one hash."""
        old = next(x for x in self.physical if x.id == name)
        low, high = int(old.low or "0", 16), int(old.high, 16)
        if high - low > 1:
            self._replace([old], [old.low, f"{(low + high) // 2:02X}", old.high])

    def merge(self, first: int) -> None:
        """Join a range, by its place in the order of bounds, with the next one."""
        a, b = self.physical[first : first + 2]
        self._replace([a, b], [a.low, b.high])

    def _replace(self, old: Sequence[FeedRange], edges: Sequence[str]) -> None:
        names = tuple(dict.fromkeys(y for x in old for y in (*x.parents, x.id)))
        owned = sorted((y for x in old for y in self.items.pop(x.id)), key=lambda y: y.lsn)
        lsn = max(self.lsns[x.id] for x in old)
        at = self.physical.index(old[0])
        new = [
            FeedRange(
                id=RangeId(str(len(self.lsns) + n)),
                low=low,
                high=high,
                parents=names,
                generation=(len(names), 0),
            )
            for n, (low, high) in enumerate(pairwise(edges))
        ]
        self.physical[at : at + len(old)] = new
        for x in new:
            self.lsns[x.id] = lsn
            self.items[x.id] = [y for y in owned if x.low <= y.hash < x.high]


class ShiftingReader(Feed):
    children_inherit_positions = True

    def __init__(self, store: ShiftingStore) -> None:
        self._store = store
        self._topology = Topology(physical=())

    @property
    def identity(self) -> str:
        return self._store.identity

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        low, high = int(found.low or "0", 16), int(found.high, 16)
        if high - low < into:
            raise FeedRefused(f"range {found.id!r} has too few hashes")
        cuts = (f"{low + (high - low) * n // into:02X}" for n in range(1, into))
        return [part_between(found, *x) for x in pairwise([found.low, *cuts, found.high])]

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return self._topology.joined(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return part_between(found, low, high)

    async def ranges(self) -> Sequence[FeedRange]:
        await self._look()
        return self._topology.physical

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        place = await self._place(found)
        if not isinstance(place, Place):
            raise RangeUnknown(found.id)
        if at == "beginning":
            return BEGINNING
        since, behind = start_us(at), self._behind(place, BEGINNING)
        lsns = (x.lsn for x in behind if since is not None and x.second >= since // 1_000_000)
        return position(next(lsns, self._store.lsns[place.physical] + 1) - 1)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        place = await self._place(found)
        if not isinstance(place, Place):
            raise RangeEnded(found.id, tuple(Child(range=x, start=after) for x in place))
        behind = self._behind(place, after)
        if not behind:
            return Page(changes=(), position=position(self._store.lsns[place.physical]))
        last = behind[:limit][-1].lsn
        items = [x for x in behind if x.lsn <= last]
        named = self._topology.name_of_changes(found)
        return Page(
            changes=[
                Change(
                    range_id=named,
                    sequence=sequence,
                    key=x.key,
                    id=x.key,
                    operation=Operation.REPLACE,
                    body=x.body,
                    committed_us=x.second * 1_000_000,
                )
                for x, sequence in zip(items, sequences([x.lsn for x in items]), strict=True)
            ],
            position=position(last),
        )

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        page = await self.read(found, after, limit)
        if not page.changes:
            return RawPage(position=page.position)
        body = msgspec.json.encode(page.changes)
        return RawPage(position=page.position, body=body)

    def rows(self, _: RangeId, page: RawPage) -> Rows:
        found = msgspec.json.decode(page.body or b"[]", type=list[Change])
        return Rows.of(found)

    def position_after(self, change: Change) -> Position:
        return position_after(change.sequence)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return {x.id: await self._lag(x, after) for x, after in at.items()}

    async def _lag(self, found: FeedRange, after: Position) -> int:
        place = await self._place(found)
        behind = self._behind(place, after) if isinstance(place, Place) else []
        if not behind or not isinstance(place, Place):
            return 0
        return self._store.lsns[place.physical] - behind[0].lsn + 1

    async def _place(self, found: FeedRange) -> Place | tuple[FeedRange, ...]:
        await self._look()
        return self._topology.find(found)

    async def _look(self) -> None:
        await asyncio.sleep(0)
        if self._topology.physical != self._store.physical:
            self._topology = Topology.of(self._store.physical)

    def _behind(self, place: Place, after: Position) -> list[_Item]:
        lsn = lsn_of(after)
        assert lsn is not None
        items = self._store.items[place.physical]
        behind = items[bisect_right(items, lsn, key=lambda x: x.lsn) :]
        return [x for x in behind if place.low <= x.hash < place.high]
