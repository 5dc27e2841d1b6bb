"""Batches for brokers, and what was read from them, in a few words."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.run_core import open_core
from changefeed.log.core_settings import CoreSettings
from changefeed.log.format.block_format import BlockChanges, Layout, check_of, lay_out
from changefeed.log.protocol.messages import (
    AppendReceipt,
    AppendRejection,
    AppendRequest,
    Batch,
)
from changefeed.log.records import Record, encode_record
from changefeed.log.stores.store import ObjectStore

QUICK = CoreSettings(
    heartbeat=0.5,
    expiration=3.0,
    settle=0.5,
    catalog_interval=0.25,
    compaction=False,
)


def virtual_us() -> int:
    """Return the time of the loop, as a wall clock has it."""
    return int(asyncio.get_running_loop().time() * 1e6)


@asynccontextmanager
async def first_broker(
    store: ObjectStore,
    name: str = "broker-1",
    *,
    parts: int = 12,
    settings: CoreSettings = QUICK,
    wall_us: Callable[[], int] | None = None,
) -> AsyncIterator[BrokerCore]:
    """Run a broker that takes records of the collection orders, which broker-1 has made."""
    wall_us = wall_us or virtual_us
    async with open_core(store, name, settings=settings, wall_us=wall_us) as core:
        if name == "broker-1":
            await core.catalogs.create("orders", parts=parts)
        await core.wait_until_writing()
        yield core


async def in_era(core: BrokerCore, era: int) -> None:
    """Wait until a broker takes records in this era, or in a later one."""
    async with asyncio.timeout(60):
        while core.status().era < era or not core.status().writing:
            await core.writer.changed.wait()


def columns(*keys: str, at_us: int = 1) -> Layout:
    """Lay out a record for each key, whose body is the key again."""
    return lay_out([encode_record(Record(key=x, body=f'"{x}"'.encode()), at_us) for x in keys])


def batch(partition: str, *keys: str, at_us: int = 1) -> Batch:
    return Batch(
        partition=RangeId(partition), count=len(keys), columns=columns(*keys, at_us=at_us)
    )


def request(
    *batches: Batch, number: int = 1, producer: str = "p", generation: int = 0
) -> AppendRequest:
    return AppendRequest(
        producer=producer,
        generation=generation,
        number=number,
        check=check_of(column for x in batches for column in x.columns),
        batches=batches,
    )


async def put(core: BrokerCore, collection: str, *batches: Batch) -> list[int]:
    """Append a request of a producer of its own; return the first sequence of each batch."""
    answer = await core.append(collection, request(*batches, producer=uuid4().hex))
    assert isinstance(answer, AppendReceipt), answer
    return [*answer.firsts]


async def fill(
    core: BrokerCore,
    partition: str,
    count: int,
    *,
    first: int = 1,
    name: str = "orders",
    pause: float = 0.0,
) -> None:
    """Write k1, k2, … one after another, each in an object of its own."""
    for n in range(first, first + count):
        await put(core, name, batch(partition, f"k{n}", at_us=n))
        await asyncio.sleep(pause)


async def refused(core: BrokerCore, asked: AppendRequest) -> str:
    """Return why a request of the collection orders is not appended."""
    answer = await core.append("orders", asked)
    assert isinstance(answer, AppendRejection), answer
    return answer.reason


async def keys_of(
    core: BrokerCore, collection: str, partition: str, after: int = 0
) -> list[str]:
    """Read a partition from a sequence to where it ends now; return the keys in order."""
    found: list[str] = []
    while True:
        result = await core.read(collection, RangeId(partition), after)
        if not result.blocks:
            return found
        for block in result.blocks:
            changes = BlockChanges(
                RangeId(partition), block.first, block.count, block.columns
            ).take(block.count)
            found += [x.key for x in changes if x.sequence > after]
            after = block.last


def open_ids(core: BrokerCore, collection: str) -> Sequence[str]:
    return [x.id for x in core.ranges.of(collection).open]
