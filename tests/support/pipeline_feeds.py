"""Feeds as planners of Spark see them, without Spark."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa

from changefeed.feeds.backend import PositionTraits
from changefeed.feeds.feed import Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.raw_pages import Rows
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import compact_log
from changefeed.log.format.block_format import Columns
from changefeed.log.records import Record
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import first_offset, next_offset, plan_slices
from changefeed.pipeline.source.reader import Access, Block, Slice
from tests.support import make

Name = tuple[RangeId, int]

MEMORY = PositionTraits(order=int, position=lambda x: Position(str(x)))


@contextmanager
def memory_access(feed: MemoryFeed) -> Iterator[FeedAccess]:
    """Reach a feed in memory, whose positions are numbers."""
    access = FeedAccess(lambda: nullcontext(feed), MEMORY)
    try:
        yield access
    finally:
        access.close()


def a_log(path: Path, bodies: Mapping[str, int], *, parts: int = 4) -> str:
    """Make a log with so many changes for each key; return its address."""
    asyncio.run(create_log(path, parts=parts))
    append_to(path, bodies)
    return f"eventlog:{path}"


def append_to(path: Path, bodies: Mapping[str, int]) -> None:
    records = [
        Record(key=key, body=b'{"n": %d}' % n, committed_us=n * 1_000_000)
        for key, count in bodies.items()
        for n in range(count)
    ]

    append_records(path, records)


def append_bodies(path: Path, key: str, *bodies: bytes) -> None:
    append_records(path, [Record(key=key, body=x) for x in bodies])


def append_records(path: Path, records: Sequence[Record], *, seal: bool = False) -> None:
    """Append to a log; ``seal``: and compact all that it has."""

    async def write() -> None:
        await make.append(path, records)
        if seal:
            await compact_log(path)

    asyncio.run(write())


def names(access: Access, slice_: Slice) -> list[Name]:
    """Read a slice; return what names its changes."""
    found: list[Name] = []
    for range_id, changes in access.read(slice_):
        found += [(range_id, x) for x in _sequences(changes)]
    return found


def drained(
    access: Access, start: Offset, *, limit: int | None = None
) -> tuple[Offset, list[list[Name]]]:
    """Read batch after batch until there is nothing; return the end and what each read."""
    batches: list[list[Name]] = []
    while (end := next_offset(access, start, limit=limit)) != start:
        slices = plan_slices(access, start, end, changes=100)
        batches.append([x for slice_ in slices for x in names(access, slice_)])
        start = end
    return start, batches


def _sequences(changes: Block) -> Sequence[int]:
    if isinstance(changes, pa.RecordBatch):
        return [int(x) for x in changes.column("sequence").to_pylist()]
    if isinstance(changes, Columns):
        return range(changes.first, changes.first + len(changes))
    if isinstance(changes, Rows):
        return changes.sequences
    return [x.sequence for x in changes]


def a_checkpoint(home: Path, *, begun: int = 0) -> Offset:
    """Make a log of 100 changes, and the checkpoint of a query that has read 30 of them."""
    a_log(home / "log", {"k": 100}, parts=1)
    with closing(open_access(f"eventlog:{home / 'log'}")) as access:
        done = next_offset(access, first_offset(access, "beginning"), limit=30)
    checkpoint = home / "tables/_checkpoints/changes"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    for batch in range(begun + 1):
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{done.as_text()}")
    (checkpoint / "commits/0").write_text("v1\n{}")
    return done
