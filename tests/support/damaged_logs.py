"""Event logs whose files are changed behind their back."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedError, FeedRefused
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, create_log
from changefeed.feeds.eventlog.bulk import BulkLog, BulkReader
from changefeed.feeds.feed import Change, FeedRange, Operation, Position, RangeId

HURT: Final = RangeId("e1.p00.v00-ff")
SOUND: Final = RangeId("e1.p01.v00-ff")
NEW_YEAR: Final = datetime(2026, 1, 1, tzinfo=UTC)


def full_records(count: int, begin: int = 0) -> list[Record]:
    """Return records that fill every column; some bodies are no UTF-8."""
    return [
        Record(
            key=f"k{n}",
            id=f"i{n}" if n % 3 else None,
            body=b"" if n % 7 == 0 else b"\xff" if n % 1001 == 1000 else b'{"n":%d}' % n,
            operation=Operation.REPLACE if n % 2 else Operation.DELETE,
            previous=b"{}" if n % 5 else None,
            committed_us=int(NEW_YEAR.timestamp() + n - 10 * (n % 2)) * 1_000_000,
        )
        for n in range(begin, begin + count)
    ]


async def full_log(path: Path, count: int) -> Path:
    """Make a log of such records in two ranges, ``HURT`` and ``SOUND``, in blocks that grew."""
    await create_log(path, 2)
    async with EventLogWriter.open(path, synchronous="off") as writer:
        for begin in range(0, count, 100):
            await writer.append(full_records(100, begin))
    return path


async def written(path: Path, range_id: RangeId = HURT) -> list[Change]:
    """Return what a sound range holds."""
    async with EventLog.open(path) as log:
        changes, error = await read_by_pages(log, range_id)
    assert error is None
    return changes


@contextmanager
def records_of(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the records of a log, to change what is in them."""
    connection = sqlite3.connect(path / "brokers/1/records.db", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


async def read_by_pages(
    log: EventLog, range_id: RangeId, start: Position | None = None, *, limit: int = 300
) -> tuple[list[Change], FeedError | None]:
    """Read a range as a host does: what came, and the error that ended it, if one did."""
    changes: list[Change] = []
    try:
        after = start or await log.start(FeedRange(id=range_id), "beginning")
        while (page := await log.read(FeedRange(id=range_id), after, limit)).changes:
            changes += page.changes
            after = page.position
        if await lag_of(log, FeedRange(id=range_id), after):
            raise AssertionError("a range that says that it goes on, and gives nothing")
    except FeedError as error:
        return changes, error
    return changes, None


def read_in_bulk(
    path: Path, range_id: RangeId, end: int
) -> tuple[list[bytes], FeedError | None]:
    """Read a range as a task of Spark does: its keys, as they lie there, and the error."""
    found: list[bytes] = []
    try:
        reader = BulkReader(BulkLog.at(path))
        try:
            found += [x.layout.keys for x in reader.read(range_id, 0, end, batch=100)]
        finally:
            reader.close()
    except FeedError as error:
        return found, error
    return found, None


async def read_some(path: Path) -> None:
    async with EventLog.open(path) as log:
        for one in await log.ranges():
            await log.read(one, await log.start(one, "beginning"), 10)


async def append_some(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        await writer.append([Record(key=f"k{n}") for n in range(20)])


async def everyone_is_refused(path: Path, said: str) -> None:
    """Check that nobody reads such a log, writes it, or reads it in bulk."""
    for refused in (read_some, append_some):
        with pytest.raises(FeedRefused, match=said):
            await refused(path)
    with pytest.raises(FeedRefused, match=said):
        BulkLog.at(path).ends()
