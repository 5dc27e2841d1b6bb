"""A consumer that reads a collection through any broker, and follows its eras."""

import asyncio
from typing import TYPE_CHECKING

from changefeed.feeds.brokers.protocol import ReadResult, Topology
from changefeed.feeds.brokers.stores.store import StoreUnavailable
from changefeed.feeds.errors import FeedError, RangeRefused
from changefeed.feeds.eventlog.block_format import changes_of
from changefeed.feeds.feed import RangeId

from .checker import Violation
from .process import Unreachable

if TYPE_CHECKING:
    from changefeed.brokers.core import BrokerCore

    from .world import World


class SimReader:
    """Reads every partition once its parents are read to their ends."""

    def __init__(self, world: "World", collection: str, number: int) -> None:
        self.id = f"reader-{number} of {collection}"
        self._collection = collection
        self._world = world
        self._after: dict[RangeId, int] = {}
        self._ended: set[RangeId] = set()
        self._parents: dict[RangeId, tuple[RangeId, ...]] = {}
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self._look()
            ready = [x for x in self._parents if self._is_ready(x)]
            await asyncio.gather(*(self._read(x) for x in ready))
            await asyncio.sleep(self._world.random.choice([0.05, 0.5]))

    def _is_ready(self, partition: RangeId) -> bool:
        return partition not in self._ended and self._ended.issuperset(self._parents[partition])

    async def _look(self) -> None:
        process = self._world.any_process()
        if process is None:
            return
        try:
            topology = await process.ask(self._ask_topology, 2.0)
        except (Unreachable, FeedError, StoreUnavailable):
            return
        for one in topology.partitions:
            self._parents.setdefault(one.range.id, one.range.parents)

    async def _ask_topology(self, core: "BrokerCore") -> Topology:
        return core.topology(self._collection)

    async def _read(self, partition: RangeId) -> None:
        process = self._world.any_process()
        if process is None:
            return
        after = self._after.get(partition, 0)
        size = self._world.random.choice([1, 200, 100_000])
        wait = self._world.random.choice([0.0, 0.0, 1.0])

        async def ask(core: "BrokerCore") -> ReadResult:
            return await core.read(
                self._collection, partition, after, max_bytes=size, wait=wait
            )

        try:
            result = await process.ask(ask, 4.0)
        except RangeRefused as error:
            raise Violation(f"{self.id} is refused: {error}") from error
        except (Unreachable, FeedError, StoreUnavailable):
            return
        for block in result.blocks:
            changes = changes_of(partition, block.first, block.count, block.columns)
            for change in changes:
                if change.sequence <= after:
                    continue
                assert change.sequence == after + 1, "a gap"
                self._world.checker.read(self.id, self._collection, change)
                after = change.sequence
        self._after[partition] = after
        if result.ended:
            self._ended.add(partition)
