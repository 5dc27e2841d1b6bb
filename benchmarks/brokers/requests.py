"""How many requests brokers send to an object store: what it charges for.

Real brokers over a store in memory, in virtual time: every number is exact, and the same on
every machine. The store takes as long as one of a cloud does. Brokers have the settings that
they have there: five objects a second, and those that have 4 MiB. Bytes are
a hundredth of what they stand for, in objects and in the limit of their size. Each
range has a reader that keeps up; it is served from memory.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from benchmarks.fleets import in_virtual_time
from benchmarks.result import Result, at_most
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.core_settings import CoreSettings
from changefeed.log.format.block_format import check_of, lay_out
from changefeed.log.protocol.messages import AppendReceipt, AppendRequest, Batch
from changefeed.log.records import Record, encode_record
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import Listed, Versioned
from tests.support.wires import Wires

from .costs import MB_A_BROKER, RATES, Counted, Second
from .names import COLLECTION, PARTS

REMOTE = CoreSettings(puts=5.0)
"""What brokers have by default over a store of a cloud."""
_SCALE = 100
_WRITE, _READ = 0.05, 0.02
"""Seconds that the store takes."""
_SECONDS, _FEW_SECONDS = 20.0, 5.0
_EVERY, _SELDOM = 0.02, 0.09
_PARTITIONS = (12, 768)


def measured() -> Sequence[Result]:
    few, many = [in_virtual_time(partial(_creates, x)) for x in _PARTITIONS]
    puts = [
        Result(name="brokers.puts.12 partitions", value=few, unit="puts/s"),
        Result(
            name="brokers.puts.768 partitions",
            value=many,
            unit="puts/s",
            against="brokers.puts.12 partitions",
            ratio=many / few,
            goal=at_most(many / few, 1.1),
        ),
    ]
    return [*puts, *(x for y in count() for x in _results(y))]


def count() -> Sequence[Counted]:
    """Count what clusters ask that take 10, 100 and 1,000 MB/s."""
    return [in_virtual_time(partial(_counted, x)) for x in RATES]


def _results(counted: Counted) -> Sequence[Result]:
    where = f"brokers.requests.{counted.mb:g} MB/s, {counted.brokers} brokers"
    return [
        Result(name=f"{where}.{kind}", value=value, unit="requests/s")
        for kind, value in counted.second.by_kind().items()
    ]


async def _creates(partitions: int) -> float:
    async with _cluster(1, partitions) as (store, cores), _loaded(cores, 1.0, every=_SELDOM):
        return (await _second(store, _FEW_SECONDS)).creates


async def _counted(mb: float) -> Counted:
    brokers = max(1, round(mb / MB_A_BROKER))
    partitions = PARTS * max(1, -(-brokers // PARTS))
    async with _cluster(brokers, partitions) as (store, cores), _loaded(cores, mb):
        return Counted(mb=mb, brokers=brokers, second=await _second(store))


async def _second(store: "CountedStore", seconds: float = _SECONDS) -> Second:
    before = store.requests.copy()
    await asyncio.sleep(seconds)
    sent = {x: (store.requests[x] - before[x]) / seconds for x in store.requests}
    return Second(**{x: sent.get(x, 0.0) for x in Second.__struct_fields__})


@asynccontextmanager
async def _cluster(
    brokers: int, partitions: int
) -> AsyncIterator[tuple["CountedStore", Sequence[BrokerCore]]]:
    """Run so many brokers, with the collection in so many partitions, evenly divided."""
    store, wires = CountedStore(), Wires()
    flush_bytes = REMOTE.flush_bytes // _SCALE
    settings = CoreSettings(puts=REMOTE.puts, flush_bytes=flush_bytes)
    async with AsyncExitStack() as running:
        cores = [
            await running.enter_async_context(wires.broker(store, f"broker-{n}", settings))
            for n in range(1, brokers + 1)
        ]
        first = cores[0]
        await first.catalogs.create(COLLECTION, parts=PARTS)
        while len(_open_in(first)) < partitions:
            opened = len(_open_in(first))
            if opened:
                await first.catalogs.split(COLLECTION, None)
            while len(_open_in(first)) in (0, opened):  # noqa: ASYNC110 - virtual
                await asyncio.sleep(1)
        while not all(x.status().writing for x in cores):  # noqa: ASYNC110 - virtual
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        yield store, cores


def _open_in(core: BrokerCore) -> Sequence[RangeId]:
    era = core.catalog.era
    if era is None or era.state != "open":
        return []
    return [x.id for x in core.ranges.of(COLLECTION).open]


@asynccontextmanager
async def _loaded(
    cores: Sequence[BrokerCore], mb: float, *, every: float = _EVERY
) -> AsyncIterator[None]:
    """Append so many MB a second to each partition evenly, and read them, meanwhile."""
    by_name = {x.name: x for x in cores}
    opened = cores[0].ranges.of(COLLECTION).open
    size = round(mb * 1e6 / _SCALE * every / len(opened))
    acts = [_append(by_name[x.broker], x.id, size, every) for x in opened]
    acts += [_follow(by_name[x.broker], x.id) for x in opened]
    tasks = [asyncio.create_task(x) for x in acts]
    try:
        yield
        failed = [x for x in tasks if x.done()]
        assert not failed, failed[0].exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _append(core: BrokerCore, partition: RangeId, size: int, every: float) -> None:
    """Append so many bytes again and again, whether earlier ones were answered or not."""
    columns = lay_out([encode_record(Record(key="k", body=b"x" * max(1, size - 18)), 0)])
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        n = 0
        while True:
            n += 1
            asked = AppendRequest(
                producer="p",
                number=n,
                check=check_of(columns),
                batches=(Batch(partition=partition, count=1, columns=columns),),
            )
            group.create_task(_stored(core, asked))
            await asyncio.sleep(began + n * every - loop.time())


async def _stored(core: BrokerCore, asked: AppendRequest) -> None:
    answer = await core.append(COLLECTION, asked)
    assert isinstance(answer, AppendReceipt), answer


async def _follow(core: BrokerCore, partition: RangeId) -> None:
    after = 0
    while True:
        found = await core.read(COLLECTION, partition, after, wait=30.0)
        after = found.last if not found.blocks else found.blocks[-1].first
        if found.blocks:
            after += found.blocks[-1].count - 1


class CountedStore:
    """A store in memory that counts what a cloud would charge for, and is as slow."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._objects = MemoryStore()

    async def create(self, key: str, data: bytes) -> bool:
        await self._asked("creates", _WRITE)
        return await self._objects.create(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self._asked("puts", _WRITE)
        await self._objects.put(key, data)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        await self._asked("puts", _WRITE)
        return await self._objects.replace(key, data, version)

    async def newer(self, key: str, version: str) -> Versioned | None:
        await self._asked("gets", _READ)
        return await self._objects.newer(key, version)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        await self._asked("gets", _READ)
        return await self._objects.get(key, start, end)

    async def written_at(self, key: str) -> float | None:
        await self._asked("heads", _READ)
        return await self._objects.written_at(key)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        await self._asked("lists", _READ)
        return await self._objects.list(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._asked("deletes", _WRITE)
        await self._objects.delete(keys)

    async def _asked(self, what: str, seconds: float) -> None:
        self.requests[what] += 1
        await asyncio.sleep(seconds)
