"""Event logs whose files are changed behind their back."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changefeed.feeds.errors import FeedError
from changefeed.feeds.eventlog import EventLog
from changefeed.feeds.eventlog.bulk import BulkLog, BulkReader
from changefeed.feeds.feed import Change, Continuation, RangeId


@contextmanager
def records_of(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the records of a log, to change what is in them."""
    connection = sqlite3.connect(path / "brokers/1/records.db", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


async def read_by_pages(
    log: EventLog, range_id: RangeId, start: Continuation | None = None, *, limit: int = 300
) -> tuple[list[Change], FeedError | None]:
    """Read a range as a host does: what came, and the error that ended it, if one did."""
    changes: list[Change] = []
    try:
        after = start or await log.resolve_start(range_id, "beginning")
        while (page := await log.read(range_id, after, limit)).changes:
            changes += page.changes
            after = page.continuation
        if await log.lag(range_id, after):
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
