"""A producer as the protocol describes it: batches for partitions, sent until answered."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from changefeed.feeds.brokers.protocol import (
    Answer,
    Appended,
    Batch,
    Topology,
)
from changefeed.feeds.brokers.ranges import Partition
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.errors import FeedError
from changefeed.feeds.eventlog.block_format import lay_out
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


class _Lane:
    """What is on its way to one partition. ``first`` is the number of the first of it.

    ``cuts`` has the size of each batch that was sent, by the number of its first record.
    """

    def __init__(self) -> None:
        self.first = 1
        self.cuts: dict[int, int] = {}
        self.waiting: deque[Sent] = deque()

    def done(self, reached: int) -> list[Sent]:
        """Take away what is stored, up to a number."""
        found = []
        while self.waiting and self.first <= reached:
            found.append(self.waiting.popleft())
            self.first += 1
        return found


class _Piece(NamedTuple):
    sequence: int
    records: tuple[Sent, ...]


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
        self._lanes: dict[RangeId, _Lane] = {}
        self._topology: Topology | None = None
        self._least = 0  # an older catalog has partitions that are known to be closed
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
        return not self._new and not any(x.waiting for x in self._lanes.values())

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
        ranges = Routes(topology, "http").partitions
        now = {x.id: x for x in ranges.all()}
        least = self._least
        era = topology.era
        for old in [x for x in self._lanes if (p := now.get(x)) is None or p.era < era]:
            if not await self._resolve(old):
                return  # what follows on its keys must wait
        if self._least > least:
            return
        self._route(topology, ranges.in_era(era))
        lanes = [x for x, y in self._lanes.items() if y.waiting]
        await asyncio.gather(*(self._send(x, now[x]) for x in lanes))

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
            sent = self._new[0]
            target = _target(opened, sent.key, topology.parts)
            if target is None:
                return
            self._new.popleft()
            self._lanes.setdefault(target, _Lane()).waiting.append(sent)

    async def _resolve(self, old: RangeId) -> bool:
        """Find out what of a closed partition is stored; return whether it is settled."""
        lane = self._lanes[old]
        if not lane.waiting:
            del self._lanes[old]
            return True
        process = self._world.any_process()
        if process is None:
            return False
        await self._exchange(old, process.name, [_piece(lane, 0, 1)])
        return old not in self._lanes

    async def _send(self, target: RangeId, info: Partition) -> None:
        lane = self._lanes[target]
        pieces = [_piece(lane, 0, self._random.choice([1, 3, 10]))]
        cut = len(pieces[0].records)
        if len(lane.waiting) > cut:
            pieces.append(_piece(lane, cut, 5))
        await self._exchange(target, info.broker, pieces)

    async def _exchange(self, target: RangeId, broker: str, pieces: list[_Piece]) -> None:
        """Send pieces side by side, as an eager client does; take answers in their order."""
        asked = [self._ask(target, broker, x) for x in pieces]
        for piece, answer in zip(pieces, await asyncio.gather(*asked), strict=True):
            if answer is None or not self._take(target, piece, answer):
                await self._look()
                return

    async def _ask(self, target: RangeId, broker: str, piece: _Piece) -> Answer | None:
        process = self._world.process_named(broker)
        if process is None:
            await asyncio.sleep(0.1)
            return None
        encoded = [encode_record(x.record(), 1) for x in piece.records]
        batch = Batch(
            partition=target,
            producer=self.id,
            sequence=piece.sequence,
            count=len(piece.records),
            columns=lay_out(encoded),
        )
        try:
            answers = await process.ask(
                lambda core: core.append(self.collection, [batch]),
                self._random.choice([0.5, 3.0, 10.0]),
            )
        except (Unreachable, FeedError, StoreError):
            return None
        return answers[0]

    def _take(self, target: RangeId, piece: _Piece, answer: Answer) -> bool:
        """Return whether the answer says that the piece is stored."""
        lane = self._lanes.get(target)
        if lane is None:
            return False
        self._world.answered(answer, lane.first)
        acknowledged = self._world.checker.acknowledged
        if isinstance(answer, Appended):
            for n, sent in enumerate(lane.done(piece.sequence + len(piece.records) - 1)):
                place = None if answer.first is None else answer.first + n
                acknowledged(sent, target, place)
            return True
        if answer.reason in ("moved", "gap"):
            assert answer.reached is not None
            if answer.reason == "moved":  # a gap may have been seen before what filled it
                self._world.checker.reached(self.id, target, lane.first, answer.reached)
            for sent in lane.done(answer.reached):
                acknowledged(sent, target, None)
        if answer.reason == "moved":
            self._least = max(self._least, answer.catalog)
            self._new.extendleft(reversed(lane.waiting))
            del self._lanes[target]
        return False


def _piece(lane: _Lane, skip: int, count: int) -> _Piece:
    """Cut a piece; what was sent before from the same number on is sent again as it was."""
    first = lane.first + skip
    count = lane.cuts.setdefault(first, min(count, len(lane.waiting) - skip))
    return _Piece(first, tuple(lane.waiting)[skip : skip + count])


def _target(opened: Sequence[Partition], key: str, parts: int) -> RangeId | None:
    part, virtual = place_of(key, parts)
    return next((x.id for x in opened if x.part == part and x.low <= virtual <= x.high), None)
