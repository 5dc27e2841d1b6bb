"""Requests that are sent once and never again: what was refused must not appear."""

from typing import TYPE_CHECKING

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.catalog.ranges import Partition
from changefeed.log.format.block_format import check_of, lay_out
from changefeed.log.protocol.messages import (
    Answer,
    AppendReceipt,
    AppendRequest,
    Batch,
    Topology,
)
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.topology import topology_of
from changefeed.log.records import encode_record
from changefeed.runtime.errors import StoreError
from tests.simulation.probes import BrokerProbe

from .checker import Sent
from .process import BrokerProcess, Unreachable

if TYPE_CHECKING:
    from .world import World


class OneShot:
    """Sends each request, often a wrong one or to a wrong place, under a new name and once."""

    def __init__(self, world: "World", collection: str, number: int) -> None:
        self.collection = collection
        self.stopping = False
        self.idle = False
        self._world = world
        self._id = f"once-{number}"
        self._sent = 0
        self._known: Topology | None = None

    async def run(self) -> None:
        while not self.stopping:
            process = self._world.any_process()
            if process is not None:
                await self._try(process)
            await self._world.pause(self._world.random.choice([0.3, 2.0]))
        self.idle = True

    async def _try(self, process: BrokerProcess) -> None:
        """Send with what is known of the topology, which may be old."""
        random = self._world.random
        if self._known is None or random.random() < 0.5:
            try:
                self._known = await process.ask(self._ask_topology, 2.0)
            except (Unreachable, FeedError):
                return
        there = [*Routes(self._known, "http").partitions.all()]
        if there:
            await self._send(process, random.choice(there))

    async def _ask_topology(self, core: BrokerCore) -> Topology:
        return topology_of(core.catalog, self.collection)

    async def _send(self, process: BrokerProcess, to: Partition) -> None:
        random, checker = self._world.random, self._world.checker
        self._sent += 1
        name = f"{self._id}-{self._sent}"
        sent = [Sent(self.collection, name, n) for n in range(1, random.choice([2, 4]))]
        for x in sent:
            checker.sent(x)
        batch = Batch(
            partition=random.choice([to.id, to.id, RangeId("e99.p01.v00-ff")]),
            count=len(sent) + random.choice([0, 0, 0, 1]),
            columns=lay_out([encode_record(x.record(), self._world.wall_us()) for x in sent]),
        )
        asked = AppendRequest(
            producer=name,
            number=random.choice([1, 1, 1, 2]),
            check=check_of(batch.columns),
            batches=(batch,),
        )
        writer = self._world.process_named(to.broker)
        if writer is not None and random.random() < 0.7:
            process = writer
        try:
            answer = await process.ask(lambda x: x.append(self.collection, asked), 5.0)
        except (Unreachable, FeedUnavailable, StoreError):
            self._note(sent, None)
        except FeedRefused:
            self._world.probes.hit(BrokerProbe.BATCH_REFUSED)
            for x in sent:
                checker.refused(x)
        else:
            self._world.answered(self.collection, asked, answer)
            self._note(sent, answer)

    def _note(self, sent: list[Sent], answer: Answer | None) -> None:
        checker = self._world.checker
        for x in sent:
            if isinstance(answer, AppendReceipt):
                checker.acknowledged(x)
            elif answer is None or answer.reason == "moving":
                checker.unknown(x)
            else:
                checker.refused(x)
