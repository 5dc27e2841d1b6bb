"""Event logs with changes to read, and a plain read of what SQLite keeps of them."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from changefeed.feeds.eventlog import EventLogWriter, Record, create_log
from changefeed.feeds.eventlog.block_format import COLUMNS

_AT_ONCE = 10_000
_KEYS = 5_000


def records(first: int, count: int) -> Sequence[Record]:
    """Make changes of about 200 bytes each, of keys that come again and again."""
    pad = "x" * 160
    return [
        Record(key=f"key-{n % _KEYS}", body=f'{{"n":{n},"pad":"{pad}"}}'.encode())
        for n in range(first, first + count)
    ]


async def make_log(path: Path, *, parts: int, changes: int) -> None:
    await create_log(path, parts)
    async with EventLogWriter.open(path, synchronous="off") as writer:
        for first in range(0, changes, _AT_ONCE):
            await writer.append(records(first, min(_AT_ONCE, changes - first)))


def seconds_to_select(path: Path) -> float:
    """Read every byte of a log's records in their order, and do nothing with them."""
    with sqlite3.connect(path / "brokers" / "1" / "records.db") as plain:
        began = perf_counter()
        rows = plain.execute(f"select {COLUMNS} from blocks order by partition, first")
        size = sum(len(column) for row in rows for column in row)
        seconds = perf_counter() - began
    plain.close()
    assert size, "the log is empty"
    return seconds
