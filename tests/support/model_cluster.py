"""Brokers as the protocol describes them, in memory, that a test tells when to fail.

A fake at the place of the client, for what takes one producer and one moment; what must hold
whatever happens is simulated, with brokers (``tests.simulation.cluster``). It stores requests,
numbers included, and answers as ``log.protocol`` says.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Change, RangeId
from changefeed.log.catalog.ranges import EraShape, Ranges
from changefeed.log.format.block_format import BlockChanges
from changefeed.log.protocol.messages import (
    Answer,
    AppendReceipt,
    AppendRejection,
    AppendRequest,
    BrokerInfo,
    Reason,
    Topology,
)
from changefeed.log.protocol.routes import Routes

IDENTITY = "f" * 32


@dataclass
class ModelReached:
    """The last request of a producer in a row."""

    generation: int
    number: int = 0


@dataclass(kw_only=True)
class ModelPartition:
    id: RangeId
    era: int
    broker: str
    closed: bool = False
    changes: list[Change] = field(default_factory=list)


class ModelCluster:
    """Stands for a ``BrokerClient``."""

    collection = "orders"

    def __init__(self, parts: int, brokers: int, random: Random) -> None:
        self.parts = parts
        self.frozen: set[str] = set()
        self.catalog = 0
        self._era_began = asyncio.Event()
        self.requests = 0
        self.behind = 0
        """So many of the next topologies are older: their broker has not seen the last era."""
        self.asked_for: list[int] = []
        self.lost_answers = 0
        """So many of the next answers to requests are lost."""
        self.rows: dict[tuple[int, str], dict[str, ModelReached]] = {}
        self._before: Topology | None = None
        self._random = random
        self._era = 0
        self._eras: list[EraShape] = []
        self.partitions: list[ModelPartition] = []
        self._brokers = 0
        self.begin_era(brokers)

    @property
    def urls(self) -> Sequence[str]:
        return [f"http://b{n}" for n in range(self._brokers)]

    def begin_era(self, brokers: int) -> None:
        """Close all that is open, and open as many partitions at so many brokers."""
        self._before = self._topology() if self.partitions else None
        for x in self.partitions:
            x.closed = True
        self._era, self._brokers = self._era + 1, brokers
        self.catalog += 1
        self._era_began.set()
        self._era_began = asyncio.Event()
        names = [f"b{n}" for n in range(brokers)]
        self._random.shuffle(names)
        self._eras.append(EraShape(era=self._era, brokers=tuple(names)))
        opened = Ranges(IDENTITY, self.parts, self._eras).open
        self.partitions += [ModelPartition(id=x.id, era=x.era, broker=x.broker) for x in opened]

    def changes(self) -> list[Change]:
        """Return all that was stored, the partitions of older eras first."""
        return [x for partition in self.partitions for x in partition.changes]

    async def routes(
        self,
        *,
        at_least: int = 0,
        newer_than: int = 0,
        wait: float = 0.0,
    ) -> Routes:
        self.asked_for.append(at_least)
        await self._travel()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while self.catalog <= newer_than:
                    await self._era_began.wait()
        if self._before is not None and self.behind:
            self.behind -= 1
            return Routes(self._before, "http")
        return Routes(self._topology(), "http")

    def _topology(self) -> Topology:
        return Topology(
            cluster="c" * 32,
            collection=self.collection,
            identity=IDENTITY,
            parts=self.parts,
            catalog=self.catalog,
            era=self._era,
            ending=False,
            eras=tuple(self._eras),
            brokers=tuple(
                BrokerInfo(name=f"b{n}", incarnation="i", address=f"b{n}")
                for n in range(self._brokers)
            ),
        )

    async def append(
        self, url: str, log: str, request: AppendRequest, *, catalog: int, seconds: float
    ) -> Answer:
        assert log == IDENTITY
        assert catalog <= self.catalog
        self.requests += 1
        if url.removeprefix("http://") in self.frozen:
            await asyncio.sleep(seconds)
            raise FeedUnavailable("frozen")
        await self._travel()
        answer = self._append(url.removeprefix("http://"), request)
        await self._travel()  # the answer may be lost, too
        if self.lost_answers:
            self.lost_answers -= 1
            raise FeedUnavailable("lost on the way back")
        return answer

    async def _travel(self) -> None:
        await asyncio.sleep(self._random.random() * 0.02)

    def _append(self, broker: str, request: AppendRequest) -> Answer:
        named = {x.id: x for x in self.partitions}
        found = [named[x.partition] for x in request.batches]
        ((era, owner, closed),) = {(x.era, x.broker, x.closed) for x in found}
        row = self.rows.setdefault((era, owner), {})
        reached = row.get(request.producer, ModelReached(request.generation))
        if request.generation > reached.generation:
            reached = ModelReached(request.generation)
        if request.generation < reached.generation:
            return AppendRejection(reason="taken")
        if request.number <= reached.number:
            return AppendReceipt(duplicate=True)
        reason = self._reason(request.number - reached.number, owner == broker, closed)
        if reason is not None:
            return AppendRejection(reason=reason, catalog=self.catalog if closed else 0)
        firsts = [len(x.changes) + 1 for x in found]
        for into, first, batch in zip(found, firsts, request.batches, strict=True):
            into.changes += BlockChanges(into.id, first, batch.count, batch.columns).take(
                batch.count
            )
        reached.number = request.number
        row[request.producer] = reached
        return AppendReceipt(firsts=tuple(firsts))

    def _reason(self, step: int, is_owner: bool, closed: bool) -> Reason | None:  # noqa: FBT001
        if closed:
            return "moved"
        if not is_owner:
            return "elsewhere"
        return "gap" if step > 1 else None
