"""One broker's writing in one era: many requests become one object, objects become a row.

Records go at once. Where an object costs a request, there are ``puts`` of them in a second and
some saved up: beyond, records wait for the next, or until there is an object full of them.
Several objects are under way at once; what is in one is acknowledged once it and all before
it exist. A number that is taken by something else than what was to be written there means
that the era is lost: somebody has sealed the row, or writes under the same name. From then
on nothing is acknowledged, and all that wait learn that the outcome is unknown.

An object is written until that is settled, for as long as it takes: what follows has
its place behind it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.notifier import Notifier
from changefeed.log.brokers.open_partition import OpenPartition, SequencedBatch
from changefeed.log.brokers.producers import key_of, stored_request, verdict_on
from changefeed.log.brokers.put_rate import PutRate
from changefeed.log.catalog.names import flush_key
from changefeed.log.core_settings import CoreSettings
from changefeed.log.format.flush import (
    FlushHeader,
    ProducerKey,
    ProducerState,
    StoredRequest,
    encode_flush,
    has_table,
    state_after,
)
from changefeed.log.format.pack import Key
from changefeed.log.protocol.messages import (
    Answer,
    AppendReceipt,
    AppendRejection,
    AppendRequest,
    Reason,
)
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.errors import StoreError

_log = logging.getLogger(__name__)

_EARLY = 1.0
"""How long a request waits for those before it, in seconds."""


class WriterPlace(NamedTuple):
    """Whose row of which era this is, and when the era began, by the master's clock."""

    cluster: str
    era: int
    broker: str
    incarnation: str
    began_us: int = 0


class _Group:
    """What goes into one object. ``done`` becomes whether it exists and is ours."""

    def __init__(self) -> None:
        self.bytes = 0
        self.batches = dict[Key, list[SequencedBatch]]()
        self.requests: list[StoredRequest] = []
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class _UnderWay(NamedTuple):
    number: int
    data: bytes
    group: _Group
    task: asyncio.Task[bool]


class RowWriter:
    """Make it, ``open`` its partitions, and ``run`` it until it is sealed or lost.

    ``on_durable(number, data)`` is called for each object in order, before those who wait
    for it go on.
    """

    def __init__(
        self,
        store: ObjectStore,
        place: WriterPlace,
        settings: CoreSettings,
        on_durable: Callable[[int, bytes], None],
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.place = place
        self.durable = 0
        """Objects up to this number exist, and are acknowledged."""
        self.lost = False
        self.is_held_up = False
        """Whether the store did not take what was to be written last."""
        self.sealed_at: int | None = None
        self._store = store
        self._settings = settings
        self._on_durable = on_durable
        self._wall_us = wall_us
        self._partitions = dict[Key, OpenPartition]()
        self._groups: deque[_Group] = deque()
        self._under_way: deque[_UnderWay] = deque()
        self._next = 1
        self._rate = PutRate(settings.puts)
        self._written_us = place.began_us
        self._buffered = 0
        self._closing = False
        self._accepted: dict[ProducerKey, ProducerState] = {}
        self._written: dict[ProducerKey, ProducerState] = {}
        self._heard: dict[ProducerKey, float] = {}
        self._changed = Notifier()
        self._ended = asyncio.Event()

    def open(self, collection: str, partitions: Iterable[RangeId]) -> None:
        """Take records for these partitions from now on; those it has stay as they are."""
        for partition in partitions:
            key = (collection, partition)
            self._partitions.setdefault(key, OpenPartition(collection, partition))

    def has(self, collection: str, partition: RangeId) -> bool:
        return (collection, partition) in self._partitions

    def last(self, collection: str, partition: RangeId) -> int:
        """Return how far a partition of this row has come in objects, durable or under way."""
        return self._partitions[collection, partition].end.last

    @property
    def is_open(self) -> bool:
        return not (self._closing or self.lost)

    @property
    def buffered(self) -> int:
        """The bytes that wait to be written, or are under way."""
        return self._buffered

    @property
    def producers(self) -> int:
        """How many have sent something in this era, and not been silent for too long since."""
        return len(self._heard)

    async def append(self, collection: str, request: AppendRequest) -> Answer:
        """Store a request that was checked; return once it is known what became of it.

        One that comes too early waits a moment for those before it. What has got its place is
        written, whether or not anybody waits.
        """
        key = key_of(collection, request)
        until = asyncio.get_running_loop().time() + _EARLY
        while self.is_open and verdict_on(request, self._accepted.get(key)) == "early":
            if not await self._changed.wait(until):
                return self._not("gap")
        if not (
            self.is_open and all(self.has(collection, x.partition) for x in request.batches)
        ):
            return self._not("moving")
        size, most = request.bytes, self._settings.buffer_bytes
        if self._buffered and self._buffered + size > most:
            return self._not("busy", self._settings.max_retry_delay)
        self._heard[key] = asyncio.get_running_loop().time()
        verdict = verdict_on(request, self._accepted.get(key))
        if verdict == "taken":
            return self._not("taken")
        if verdict == "stored":
            return await self._settled(AppendReceipt(duplicate=True), self._last_accepted())
        assert verdict == "new", f"{request.number} of {request.producer} is {verdict}"
        group = self._accept(collection, request, size)
        firsts = tuple(
            group.batches[collection, x.partition][-1].first for x in request.batches
        )
        assert min(firsts) > 0, f"sequences count from 1: {firsts}"
        return await self._settled(AppendReceipt(firsts=firsts), group)

    def _last_accepted(self) -> _Group | None:
        """Return what holds the newest records that are not durable yet."""
        if self._groups:
            return self._groups[-1]
        return self._under_way[-1].group if self._under_way else None

    def _accept(self, collection: str, request: AppendRequest, size: int) -> _Group:
        """Give a request its place, whole in one object."""
        if not self._groups or self._groups[-1].bytes >= self._settings.flush_bytes:
            self._groups.append(_Group())
        group, key = self._groups[-1], key_of(collection, request)
        assert self.is_open, f"{self.place} takes nothing more"
        for batch in request.batches:
            placed = self._partitions[collection, batch.partition].accept(batch)
            group.batches.setdefault((collection, batch.partition), []).append(placed)
        stored = stored_request(collection, request)
        group.requests.append(stored)
        self._accepted[key] = state_after(self._accepted.get(key), stored, 0)
        assert size > 0, f"a request of {request.producer} without bytes"
        group.bytes += size
        self._buffered += size
        self._changed.notify()
        return group

    async def _settled(self, answer: Answer, group: _Group | None) -> Answer:
        if group is None or await asyncio.shield(group.done):
            return answer
        return self._not("moving")

    def _not(self, reason: Reason, delay: float | None = None) -> AppendRejection:
        delay = self._settings.catalog_interval if delay is None else delay
        return AppendRejection(reason=reason, retry_after=delay)

    async def run(self) -> None:
        """Write and acknowledge until the row is sealed or lost.

        Cancelled, it leaves what is under way to those who read the row.
        """
        try:
            async with asyncio.TaskGroup() as group:
                acknowledging = group.create_task(self._acknowledge())
                await self._write(group)
                acknowledging.cancel()
            assert self.lost or self.sealed_at is not None, f"{self.place} has no end"
        finally:
            self._give_up()
            self._ended.set()

    async def seal(self) -> bool:
        """Take no more records, finish what is in hand, and end the row with a seal.

        Return whether it was this broker that ended it. ``run`` is running.
        """
        self._closing = True
        self._changed.notify()
        await self._ended.wait()
        return self.sealed_at is not None

    def lose(self) -> None:
        """Acknowledge nothing any more: another era has begun."""
        if not (self.lost or self.sealed_at is not None):
            self._lose()

    async def _write(self, tasks: asyncio.TaskGroup) -> None:
        while not self.lost:
            if self._groups:
                await self._until_due(self._groups[0])
                while len(self._under_way) >= self._settings.in_flight and not self.lost:
                    await self._changed.wait()
                if not self.lost:
                    self._send(tasks, self._groups.popleft())
            elif self._closing and not self._under_way:
                await self._write_seal()
                return
            else:
                await self._changed.wait()

    async def _until_due(self, group: _Group) -> None:
        """Wait until there may be another object, or this one is full."""
        while group.bytes < self._settings.flush_bytes and self.is_open:
            if not await self._changed.wait(self._rate.due):
                return

    def _send(self, tasks: asyncio.TaskGroup, group: _Group) -> None:
        number, self._next = self._next, self._next + 1
        assert number == self.durable + len(self._under_way) + 1, (
            f"object {number} of {self.place} leaves a gap behind {self.durable}"
        )
        assert group.batches, f"object {number} of {self.place} would hold nothing"
        now_us = self._now_us()
        header = self._header(number, now_us)
        records = [
            self._partitions[k].records(v, now_us) for k, v in sorted(group.batches.items())
        ]
        assert group.requests, f"object {number} of {self.place} has records of no producer"
        for x in group.requests:
            key = (x.collection, x.producer)
            self._written[key] = state_after(self._written.get(key), x, now_us)
        header = replace(header, requests=tuple(group.requests))
        data = encode_flush(header, records)
        self._rate.pay()
        task = tasks.create_task(self._create(number, data))
        self._under_way.append(_UnderWay(number, data, group, task))
        assert len(self._under_way) <= self._settings.in_flight, (
            f"{len(self._under_way)} objects of {self.place} are under way"
        )
        self._changed.notify()

    def _header(self, number: int, now_us: int, *, seal: bool = False) -> FlushHeader:
        assert number > self.durable, f"object {number} of {self.place} is there already"
        table, producers = None, tuple[ProducerState, ...]()
        if has_table(number) or seal:
            self._forget_the_silent()
            table = tuple(x.end for x in self._partitions.values())
            producers = tuple(self._written.values())
        return FlushHeader(
            cluster=self.place.cluster,
            era=self.place.era,
            broker=self.place.broker,
            incarnation=self.place.incarnation,
            number=number,
            written_us=now_us,
            seal=seal,
            table=table,
            producers=producers,
        )

    def _forget_the_silent(self) -> None:
        """Forget producers that were silent for long, and have nothing waiting."""
        before = asyncio.get_running_loop().time() - self._settings.producer_memory
        for key in [x for x, heard in self._heard.items() if heard < before]:
            accepted, written = self._accepted.get(key), self._written.get(key)
            if accepted is None or (written is not None and accepted[:4] == written[:4]):
                self._accepted.pop(key, None)
                self._written.pop(key, None)
                del self._heard[key]

    def _now_us(self) -> int:
        """Return the wall-clock time; in a row it never goes back, nor before its era.

        Retention goes by it, and a clock that is behind must not make records old.
        """
        self._written_us = max(self._written_us, self._wall_us())
        return self._written_us

    async def _write_seal(self) -> None:
        number = self._next
        assert number == self.durable + 1, f"a seal {number} behind {self.durable} ends nothing"
        data = encode_flush(self._header(number, self._now_us(), seal=True))
        if await self._create(number, data):
            self.sealed_at = number
            self._on_durable(number, data)
        else:
            self._lose()

    async def _create(self, number: int, data: bytes) -> bool:
        """Write an object until that is settled; return whether what is there is ours."""
        key = flush_key(self.place.era, self.place.broker, number)
        delay = self._settings.retry_delay
        while not self.lost:
            try:
                if await self._store.create(key, data):
                    self.is_held_up = False
                    return True
                there = await self._store.get(key)
                if there is not None:
                    return there == data
                why = "the store says that it is there, and has none"
            except StoreError as error:
                why = str(error)
            self.is_held_up = True
            _log.warning(
                "broker.failed",
                extra={"operation": "write an object", "key": key, "error": why},
            )
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._settings.max_retry_delay)
        return False

    async def _acknowledge(self) -> None:
        """Answer those who wait, in the order of the row."""
        while True:
            while not self._under_way:
                await self._changed.wait()
            number, data, group, task = self._under_way[0]
            if not await task:
                self._lose()
            if self.lost:
                return
            self._under_way.popleft()
            assert number == self.durable + 1, f"{number} is acknowledged after {self.durable}"
            self.durable = number
            self._buffered -= group.bytes
            assert self._buffered >= 0, f"{self._buffered} bytes wait to be written"
            self._on_durable(number, data)
            group.done.set_result(True)
            self._changed.notify()

    def _lose(self) -> None:
        _log.warning("broker.era_lost", extra={"era": self.place.era, "at": self.durable + 1})
        assert self.sealed_at is None, f"{self.place} is lost, and was sealed here"
        self.lost = True
        for other in self._under_way:
            other.task.cancel()
        self._give_up()
        self._changed.notify()

    def _give_up(self) -> None:
        """Nothing that is not acknowledged by now will be."""
        self._closing = True
        for group in [*self._groups, *(x.group for x in self._under_way)]:
            if not group.done.done():
                group.done.set_result(False)
        self._groups.clear()
