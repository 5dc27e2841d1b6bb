"""A producer as the protocol describes it: requests to rows, sent until answered."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from changefeed.feeds.brokers.protocol import (
    Answer,
    Appended,
    AppendRequest,
    Batch,
    Topology,
)
from changefeed.feeds.brokers.ranges import Partition
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.errors import FeedError
from changefeed.feeds.eventlog.block_format import check_of, lay_out
from changefeed.feeds.eventlog.hashing import place_of
from changefeed.feeds.eventlog.records import encode_record
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreError
from tests.simulation.probes import BrokerProbe

from .checker import Sent
from .process import Unreachable

if TYPE_CHECKING:
    from changefeed.brokers.core import BrokerCore

    from .world import World


class _Row(NamedTuple):
    era: int
    broker: str


class _Target(NamedTuple):
    sent: Sent
    partition: RangeId


class _Lane:
    """What is on its way to one row. ``first`` is the number of the first request of it.

    ``requests`` are cut once: what was sent under a number is sent again as it was.
    """

    def __init__(self) -> None:
        self.first = 1
        self.waiting: deque[_Target] = deque()
        self.requests: list[list[_Target]] = []

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.requests

    def cut(self, most: int) -> None:
        """Make one more request of what waits, if anything does."""
        if self.waiting:
            count = min(most, len(self.waiting))
            self.requests.append([self.waiting.popleft() for _ in range(count)])

    def records(self) -> list[Sent]:
        found = [x for request in self.requests for x in request]
        return [x.sent for x in (*found, *self.waiting)]


class SimProducer:
    """Writes records of its own keys, each with a number that counts up by key."""

    def __init__(self, world: "World", collection: str, number: int) -> None:
        self.id = f"producer-{number}"
        self.collection = collection
        self._world = world
        self._random = world.random
        self._keys = [f"{number}-{x}" for x in range(world.random.choice([1, 5, 30]))]
        self._counts = dict.fromkeys(self._keys, 0)
        self._new: deque[Sent] = deque()
        self._lanes: dict[_Row, _Lane] = {}
        self._topology: Topology | None = None
        self._least = 0  # an older catalog has rows that are known to be closed
        self.stopping = False
        self.idle = False

    async def run(self) -> None:
        while not (self.stopping and self._is_empty()):
            if not self.stopping and len(self._new) < 50:
                self._write()
            await self._round()
            await asyncio.sleep(self._random.choice([0.0, 0.01, 0.2, 1.5]))
        self.idle = True

    def _is_empty(self) -> bool:
        return not self._new and all(x.is_empty for x in self._lanes.values())

    def _write(self) -> None:
        for _ in range(self._random.choice([0, 1, 3, 20])):
            key = self._random.choice(self._keys)
            self._counts[key] += 1
            sent = Sent(self.collection, key, self._counts[key])
            self._world.checker.sent(sent)
            self._new.append(sent)

    async def _round(self) -> None:
        if self._topology is None or self._random.random() < 0.05:
            await self._look()
        topology = self._topology
        if topology is None or topology.catalog < self._least:
            self._topology = None
            self._world.probes.hit(BrokerProbe.OLD_TOPOLOGY, where=topology is not None)
            return
        least = self._least
        for old in [x for x in self._lanes if x.era < topology.era]:
            if not await self._resolve(old):
                return  # what follows on its keys must wait
        if self._least > least:
            return
        opened = Routes(topology, "http").partitions.in_era(topology.era)
        self._route(topology, opened)
        await asyncio.gather(*(self._send(x) for x, y in self._lanes.items() if not y.is_empty))

    async def _look(self) -> None:
        """Ask any broker for the topology; never go back to an older one."""
        process = self._world.any_process()
        if process is None:
            return
        try:
            found = await process.ask(self._ask_topology, 2.0)
        except (Unreachable, FeedError, StoreError):
            return
        if self._topology is None or found.catalog >= self._topology.catalog:
            self._topology = found

    async def _ask_topology(self, core: "BrokerCore") -> Topology:
        return topology_of(core.catalog, self.collection)

    def _route(self, topology: Topology, opened: Sequence[Partition]) -> None:
        if topology.ending:
            return
        for _ in range(len(self._new)):
            found = _partition(opened, self._new[0].key, topology.parts)
            if found is None:
                return
            lane = self._lanes.setdefault(_Row(found.era, found.broker), _Lane())
            lane.waiting.append(_Target(self._new.popleft(), found.id))

    async def _resolve(self, old: _Row) -> bool:
        """Find out which requests a closed row has; return whether that is settled."""
        lane = self._lanes[old]
        if not lane.requests:
            self._move(old)
            return True
        process = self._world.any_process()
        if process is None:
            return False
        await self._exchange(old, process.name, 1)
        return old not in self._lanes

    async def _send(self, target: _Row) -> None:
        lane = self._lanes[target]
        while len(lane.requests) < self._random.choice([1, 2, 5]) and lane.waiting:
            lane.cut(self._random.choice([1, 3, 10]))
        await self._exchange(target, target.broker, len(lane.requests))

    async def _exchange(self, target: _Row, broker: str, count: int) -> None:
        """Send requests side by side, as an eager client does; take answers in their order."""
        lane = self._lanes[target]
        asked = [self._ask(lane, n, broker) for n in range(count)]
        for answer in await asyncio.gather(*asked):
            if answer is None or not self._take(target, answer):
                await self._look()
                return

    async def _ask(self, lane: _Lane, n: int, broker: str) -> Answer | None:
        process = self._world.process_named(broker)
        if process is None:
            await asyncio.sleep(0.1)
            return None
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.choice([0.0, 0.1, 0.7]))  # another overtakes it
        asked = request_of(self.id, lane.first + n, lane.requests[n])
        try:
            return await process.ask(
                lambda core: core.append(self.collection, asked),
                self._random.choice([0.5, 3.0, 10.0]),
            )
        except (Unreachable, FeedError, StoreError):
            return None

    def _take(self, target: _Row, answer: Answer) -> bool:
        """Take the answer to the oldest request; return whether it is stored."""
        lane = self._lanes.get(target)
        if lane is None:
            return False
        is_over = self._topology is not None and target.era < self._topology.era
        self._world.answered(answer, is_over=is_over)
        if isinstance(answer, Appended):
            lane.first += 1
            stored, places = lane.requests.pop(0), dict[RangeId, int]()
            if answer.firsts:
                names = dict.fromkeys(x.partition for x in stored)
                places = dict(zip(names, answer.firsts, strict=True))
            for sent, partition in stored:
                place = places.get(partition)
                self._world.checker.acknowledged(sent, partition, place)
                if place is not None:
                    places[partition] = place + 1
            return True
        if answer.reason == "moved":
            self._least = max(self._least, answer.catalog)
            self._move(target)
        return False

    def _move(self, old: _Row) -> None:
        """Cut anew what a closed row does not have: its oldest request, and all behind it."""
        self._new.extendleft(reversed(self._lanes.pop(old).records()))


def request_of(producer: str, number: int, targets: list[_Target]) -> AppendRequest:
    """Lay out records, one batch for each partition in the order of its first record."""
    grouped: dict[RangeId, list[Sent]] = {}
    for sent, partition in targets:
        grouped.setdefault(partition, []).append(sent)
    batches = tuple(
        Batch(
            partition=name,
            count=len(records),
            columns=lay_out([encode_record(x.record(), 1) for x in records]),
        )
        for name, records in grouped.items()
    )
    return AppendRequest(
        producer=producer,
        number=number,
        check=check_of(column for x in batches for column in x.columns),
        batches=batches,
    )


def _partition(opened: Sequence[Partition], key: str, parts: int) -> Partition | None:
    part, virtual = place_of(key, parts)
    return next((x for x in opened if x.part == part and x.low <= virtual <= x.high), None)
