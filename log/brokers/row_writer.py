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
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.notifier import Notifier
from changefeed.log.brokers.producers import key_of, stored_request, verdict_on
from changefeed.log.brokers.put_rate import PutRate
from changefeed.log.core_settings import CoreSettings
from changefeed.log.format.block_format import Layout, joined
from changefeed.log.format.flush import (
    ProducerKey,
    ProducerState,
    StoredRequest,
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
from changefeed.log.rows.open_row import OpenRow, RowObject, WriterPlace
from changefeed.log.stores.store import ObjectStore, create_once
from changefeed.runtime.clock import wall_clock_us
from changefeed.runtime.errors import StoreError
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_EARLY = 1.0
"""How long a request waits for those before it, in seconds."""


class _Group:
    """What goes into one object. ``done`` becomes where its records begin, or None: lost."""

    def __init__(self) -> None:
        self.bytes = 0
        self.columns = defaultdict[Key, list[Layout]](list)
        self.counts = Counter[Key]()
        self.requests: list[StoredRequest] = []
        self.done: asyncio.Future[Mapping[Key, int] | None]
        self.done = asyncio.get_running_loop().create_future()


class _UnderWay(NamedTuple):
    made: RowObject
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
        wall_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.place = place
        self.durable = 0
        """Objects up to this number exist, and are acknowledged."""
        self.lost = False
        self.buffered = 0
        """The bytes that wait to be written, or are under way."""
        self.is_held_up = False
        """Whether the store did not take what was to be written last."""
        self.sealed_at: int | None = None
        self._store = store
        self._settings = settings
        self._on_durable = on_durable
        self._row = OpenRow(place, wall_us)
        self._groups: deque[_Group] = deque()
        self._under_way: deque[_UnderWay] = deque()
        self._rate = PutRate(settings.puts)
        self._closing = False
        self._accepted: dict[ProducerKey, ProducerState] = {}
        self._heard: dict[ProducerKey, float] = {}
        self._changed = Notifier()
        self._ended = asyncio.Event()

    def open(self, collection: str, partitions: Iterable[RangeId]) -> None:
        """Take records for these partitions from now on; those it has stay as they are."""
        self._row.open((collection, x) for x in partitions)

    def has(self, collection: str, partition: RangeId) -> bool:
        return (collection, partition) in self._row.ends

    def last(self, collection: str, partition: RangeId) -> int:
        """Return how far a partition of this row has come in objects, durable or under way."""
        return self._row.ends[collection, partition].last

    @property
    def is_open(self) -> bool:
        return not (self._closing or self.lost)

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
        if self.buffered and self.buffered + size > most:
            return self._not("busy", self._settings.max_retry_delay)
        self._heard[key] = asyncio.get_running_loop().time()
        verdict = verdict_on(request, self._accepted.get(key))
        if verdict == "taken":
            return self._not("taken")
        if verdict == "stored":
            group, ahead = self._last_accepted(), list[tuple[Key, int]]()
        else:
            assert verdict == "new", f"{request.number} of {request.producer} is {verdict}"
            group, ahead = self._accept(collection, request, size)
        begin = await asyncio.shield(group.done) if group is not None else {}
        if begin is None:
            return self._not("moving")
        firsts = tuple(begin[key] + count for key, count in ahead)
        assert min(firsts, default=1) > 0, f"sequences count from 1: {firsts}"
        return AppendReceipt(firsts=firsts, duplicate=verdict == "stored")

    def _last_accepted(self) -> _Group | None:
        """Return what holds the newest records that are not durable yet."""
        if self._groups:
            return self._groups[-1]
        return self._under_way[-1].group if self._under_way else None

    def _accept(
        self, collection: str, request: AppendRequest, size: int
    ) -> tuple[_Group, list[tuple[Key, int]]]:
        """Give a request its place, whole in one object.

        Return how many records of its partition are there before each of its batches.
        """
        if not self._groups or self._groups[-1].bytes >= self._settings.flush_bytes:
            self._groups.append(_Group())
        group, key = self._groups[-1], key_of(collection, request)
        assert self.is_open, f"{self.place} takes nothing more"
        ahead = list[tuple[Key, int]]()
        for batch in request.batches:
            place = (collection, batch.partition)
            ahead.append((place, group.counts[place]))
            group.counts[place] += batch.count
            group.columns[place].append(batch.columns)
        stored = stored_request(collection, request)
        group.requests.append(stored)
        self._accepted[key] = state_after(self._accepted.get(key), stored, 0)
        assert size > 0, f"a request of {request.producer} without bytes"
        group.bytes += size
        self.buffered += size
        self._changed.notify()
        return group, ahead

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
        number = self._row.next
        assert number == self.durable + len(self._under_way) + 1, (
            f"object {number} of {self.place} leaves a gap behind {self.durable}"
        )
        assert group.columns, f"object {number} of {self.place} would hold nothing"
        assert group.requests, f"object {number} of {self.place} has records of no producer"
        if has_table(number):
            self._forget_the_silent()
        columns = {key: joined(found) for key, found in group.columns.items()}
        made = self._row.make(columns, group.requests)
        counts = {key: end.last - made.firsts[key] + 1 for key, end in made.ends.items()}
        assert counts == group.counts, f"{counts} records, {group.counts} accepted"
        self._row.add(made)
        self._rate.pay()
        task = tasks.create_task(self._create(made))
        self._under_way.append(_UnderWay(made, group, task))
        assert len(self._under_way) <= self._settings.in_flight, (
            f"{len(self._under_way)} objects of {self.place} are under way"
        )
        self._changed.notify()

    def _forget_the_silent(self) -> None:
        """Forget producers that were silent for long, and have nothing waiting."""
        before = asyncio.get_running_loop().time() - self._settings.producer_memory
        for key in [x for x, heard in self._heard.items() if heard < before]:
            accepted, written = self._accepted.get(key), self._row.producers.get(key)
            if accepted is None or (written is not None and accepted[:4] == written[:4]):
                self._accepted.pop(key, None)
                self._row.forget(key)
                del self._heard[key]

    async def _write_seal(self) -> None:
        self._forget_the_silent()
        made = self._row.make({}, seal=True)
        number = made.number
        assert number == self.durable + 1, f"a seal {number} behind {self.durable} ends nothing"
        if await self._create(made):
            self.sealed_at = number
            self._on_durable(number, made.data)
        else:
            self._lose()

    async def _create(self, made: RowObject) -> bool:
        """Write an object until that is settled; return whether what is there is ours."""
        delay = self._settings.retry_delay
        while not self.lost:
            try:
                is_ours = await create_once(self._store, made.key, made.data)
                if is_ours is not None:
                    self.is_held_up = False
                    return is_ours
                why = "the store says that it is there, and has none"
            except StoreError as error:
                why = str(error)
            self.is_held_up = True
            _log.warning("broker.failed", operation="write an object", key=made.key, error=why)
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._settings.max_retry_delay)
        return False

    async def _acknowledge(self) -> None:
        """Answer those who wait, in the order of the row."""
        while True:
            while not self._under_way:
                await self._changed.wait()
            made, group, task = self._under_way[0]
            number = made.number
            if not await task:
                self._lose()
            if self.lost:
                return
            self._under_way.popleft()
            assert number == self.durable + 1, f"{number} is acknowledged after {self.durable}"
            self.durable = number
            self.buffered -= group.bytes
            assert self.buffered >= 0, f"{self.buffered} bytes wait to be written"
            self._on_durable(number, made.data)
            group.done.set_result(made.firsts)
            self._changed.notify()

    def _lose(self) -> None:
        _log.warning("broker.era", lost=self.place.era, at=self.durable + 1)
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
                group.done.set_result(None)
        self._groups.clear()
