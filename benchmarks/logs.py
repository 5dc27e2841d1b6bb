"""Event logs with changes to read, and a plain read of their files."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record

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
    async with EventLogWriter.open(path) as writer:
        for first in range(0, changes, _AT_ONCE):
            await writer.send_many(records(first, min(_AT_ONCE, changes - first)))


def seconds_to_read(path: Path) -> float:
    """Read every byte of a log's records in their order, and do nothing with them."""
    began = perf_counter()
    size = sum(len(x.read_bytes()) for x in sorted(path.glob("wal/*/*/.frames/*.log")))
    seconds = perf_counter() - began
    assert size, "the log is empty"
    return seconds
