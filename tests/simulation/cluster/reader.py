"""Consumers that follow the eras of a collection: of brokers themselves, and as a feed."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from changefeed.feeds.errors import FeedError, RangeDamaged, RangeRefused
from changefeed.feeds.feed import Change, FeedRange, RangeEnded, RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.format.block_format import BlockChanges
from changefeed.log.ids import era_in, position, sequence_of
from changefeed.log.protocol.messages import ReadResult, Topology
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.topology import topology_of
from changefeed.log.rows.row_reader import ALL
from changefeed.runtime.errors import StoreError
from tests.simulation.probes import BrokerProbe
from tests.simulation.progress import Violation

from .process import Unreachable
from .transport import SimClient

if TYPE_CHECKING:
    from .world import World

_PASSING = (Unreachable, FeedError, StoreError)
_GONE = re.compile(r"records ([\d,]+) to ([\d,]+) of range '([^']+)' were deleted")


class Source(Protocol):
    """How a reader reaches a collection. Both may raise what ``_PASSING`` says."""

    async def ranges(self) -> Sequence[FeedRange]: ...

    async def read(self, partition: RangeId, after: int) -> tuple[Sequence[Change], bool]:
        """Return what follows, maybe with some before it, and whether that was the end."""
        ...

    async def after_loss(self, error: RangeRefused, after: int) -> int:
        """Return the last sequence that is gone, where a position was refused for that."""
        ...


class CoreSource:
    """Any broker, asked directly: sections as they are, in answers of all sizes."""

    def __init__(self, world: "World", collection: str) -> None:
        self._world = world
        self._collection = collection

    async def ranges(self) -> Sequence[FeedRange]:
        async def ask(core: BrokerCore) -> Topology:
            return topology_of(core.catalog, self._collection)

        topology = await self._world.any_broker().ask(ask, 2.0)
        return Routes(topology, "http").ranges

    async def read(self, partition: RangeId, after: int) -> tuple[Sequence[Change], bool]:
        random = self._world.random
        size, wait = random.choice([1, 200, 100_000]), random.choice([0.0, 1.0])

        async def ask(core: BrokerCore) -> ReadResult:
            return await core.read(
                self._collection, partition, after, max_bytes=size, wait=wait
            )

        result = await self._world.any_broker().ask(ask, 4.0)
        changes: list[Change] = []
        for block in result.blocks:
            changes += BlockChanges(partition, block.first, block.count, block.columns).take(
                block.count
            )
        return changes, result.ended

    async def after_loss(self, error: RangeRefused, after: int) -> int:
        return _last_gone(error, after)


class FeedSource:
    """The feed that hosts read, over the client and the server."""

    def __init__(self, world: "World", collection: str) -> None:
        self._world = world
        self._client = SimClient(world, collection)
        self._feed: BrokersFeed | None = None

    async def ranges(self) -> Sequence[FeedRange]:
        if self._feed is None:
            wait = self._world.random.choice([0.0, 1.0])
            self._feed = BrokersFeed(self._client, await self._client.routes(), wait=wait)
        return await self._feed.ranges()

    async def read(self, partition: RangeId, after: int) -> tuple[Sequence[Change], bool]:
        assert self._feed is not None
        limit = self._world.random.choice([1, 20, 1000])
        try:
            page = await self._feed.read(
                FeedRange(id=partition), position(self._feed.identity, after), limit
            )
        except RangeEnded:
            return (), True
        if page.changes:
            last = sequence_of(page.position, self._feed.identity)
            assert last == page.changes[-1].sequence, "a page ends with its last change"
        return page.changes, False

    async def after_loss(self, error: RangeRefused, after: int) -> int:
        """Do what the refusal advises: go on at the beginning of what is left."""
        gone = _last_gone(error, after)
        assert self._feed is not None
        start = await self._feed.start(FeedRange(id=error.range_id), "beginning")
        found = sequence_of(start, self._feed.identity)
        if found < gone:
            return after  # of a broker that knows an older catalog: ask again
        return found


def _last_gone(error: RangeRefused, after: int) -> int:
    """Return the last sequence that is gone, as the refusal of a position says it."""
    said = _GONE.search(str(error))
    if said is None or int(said[1].replace(",", "")) != after + 1:
        raise Violation(f"it is refused: {error}") from error
    return int(said[2].replace(",", ""))


class SimReader:
    """Reads every partition once its parents are read to their ends."""

    def __init__(self, world: "World", collection: str, name: str, source: Source) -> None:
        self.id = f"{name} of {collection}"
        self.collection = collection
        self.stopping = False
        self._source = source
        self._world = world
        self._after: dict[RangeId, int] = {}
        self._ended: set[RangeId] = set()
        self._parents: dict[RangeId, tuple[RangeId, ...]] = {}

    async def run(self) -> None:
        while not self.stopping:
            try:
                listed = await self._source.ranges()
                self._pass_over(listed)
                for one in listed:
                    self._parents.setdefault(one.id, one.parents)
            except _PASSING:
                pass
            ready = [x for x in self._parents if self._is_ready(x)]
            await asyncio.gather(*(self._read(x) for x in ready))
            pause = self._world.random.choice([0.2, 1.0, 3.0])
            await self._world.pause(0.2 if self._world.settled else pause)

    def _pass_over(self, listed: Sequence[FeedRange]) -> None:
        """Who has not begun with an era before it was gone, and listed no more, never does."""
        newest = self._world.guard.newest
        first = min((era_in(x.id) for x in listed), default=0)
        for x in ranges_of(newest, self.collection).all():
            if x.era < first and x.id not in self._parents:
                if x.era >= newest.collection(self.collection).kept_era:
                    raise Violation(f"{x.id} is not listed for {self.id}, and is not gone")
                self._parents[x.id] = ()
                self._ended.add(x.id)
                self._world.checker.lost(self.id, self.collection, x.id, 1, ALL)

    def _is_ready(self, partition: RangeId) -> bool:
        return partition not in self._ended and self._ended.issuperset(self._parents[partition])

    async def _read(self, partition: RangeId) -> None:
        after = self._after.get(partition, 0)
        try:
            changes, ended = await self._source.read(partition, after)
        except RangeDamaged as error:
            self._world.damage.told(self.collection, partition, error)
            return
        except RangeRefused as error:
            await self._lose(partition, after, error)
            return
        except _PASSING:
            return
        for change in changes:
            if change.sequence <= after:
                continue
            if change.sequence != after + 1:
                raise Violation(f"{self.id} has a gap in {partition} after {after}")
            self._world.checker.read(self.id, self.collection, change)
            after = change.sequence
        self._after[partition] = after
        if ended:
            self._ended.add(partition)

    async def _lose(self, partition: RangeId, after: int, error: RangeRefused) -> None:
        """Go on behind what is gone, where the refusal says so."""
        try:
            start = await self._source.after_loss(error, after)
        except _PASSING:
            return
        self._world.probes.hit(BrokerProbe.LOSS_LEARNED)
        self._world.checker.lost(self.id, self.collection, partition, after + 1, start)
        self._after[partition] = start
