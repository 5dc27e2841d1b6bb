"""Event logs whose files are changed behind their back."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from changefeed.feeds.errors import FeedError, FeedRefused
from changefeed.feeds.feed import Change, FeedRange, Operation, Position, RangeId
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record

HURT: Final = RangeId("e1.p01.v00-ff")
SOUND: Final = RangeId("e1.p02.v00-ff")
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
    """Make a log of such records in two ranges, ``HURT`` and ``SOUND``, by hundreds."""
    await create_log(path, 2)
    async with EventLogWriter.open(path) as writer:
        for begin in range(0, count, 100):
            await writer.send_many(full_records(100, begin))
    return path


def frames_of(path: Path) -> Path:
    """Return the file that holds the changes of a small log."""
    (found,) = path.glob("wal/*/*/.frames/*.log")
    return found


async def read_by_pages(
    log: EventLog, range_id: RangeId, *, limit: int = 300, after: Position | None = None
) -> tuple[list[Change], FeedError | None]:
    """Read a range as a host does: what came, and the error that ended it, if one did."""
    changes: list[Change] = []
    try:
        after = after or await log.start(FeedRange(id=range_id), "beginning")
        while (page := await log.read(FeedRange(id=range_id), after, limit)).changes:
            changes += page.changes
            after = page.position
    except FeedError as error:
        return changes, error
    return changes, None


async def everyone_is_refused(path: Path, said: str) -> None:
    """Check that nobody reads such a log, or writes it."""
    with pytest.raises(FeedRefused, match=said):
        async with EventLog.open(path):
            pass
    with pytest.raises(FeedRefused, match=said):
        async with EventLogWriter.open(path):
            pass
