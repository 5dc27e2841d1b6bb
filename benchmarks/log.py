"""The embedded event log: appends one at a time and in batches, reads, and a compaction.

Appends are held against a bare file that is written and synced as often, with as many bytes,
by turns: what the log adds is hashing, columns, a frame, and a hop to a thread. CPU is that of
this process, of all its threads. Reads are of what was appended, first as it lies in frames,
then compacted. The compaction is of 96 frames with a record of each of 3,600 ranges.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter, compact_log
from changefeed.log.hashing import place_of
from changefeed.log.records import Record

from .logs import records
from .one_host import seconds_of_loop
from .result import Result, at_most, by_rounds

_ROUNDS = 3
_PARTS = 12
_RECORDS = {1: 3_000, 100: 60_000, 1_000: 120_000}
"""By the size of a batch."""
_FRAMES, _RANGES = 96, 3_600
_MAX_OBJECTS = 10

Found = Mapping[str, float]


def measure() -> Sequence[Result]:
    found = [x for batch in _RECORDS for x in asyncio.run(_appends(batch))]
    return [*found, *asyncio.run(_compaction())]


async def _appends(batch: int) -> Sequence[Result]:
    rounds = [await _round(batch) for _ in range(_ROUNDS)]
    name = f"log.{batch}"
    return [
        by_rounds(name, rounds, "sync", "µs p50"),
        by_rounds(name, rounds, "append", "µs p50", against="sync"),
        by_rounds(name, rounds, "append_cpu", "µs/record"),
        by_rounds(name, rounds, "read_cpu", "µs/record"),
        by_rounds(name, rounds, "read_compacted_cpu", "µs/record", against="read_cpu"),
    ]


async def _round(batch: int) -> Found:
    count = _RECORDS[batch]
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await create_log(log, _PARTS)
        times, cpu = await _append(log, batch, count)
        size = sum(x.stat().st_size for x in log.glob("wal/*/*/.frames/*.log"))
        syncs = _sync(Path(place) / "bare", len(times), size // len(times))
        read = await _read(log, count)
        await compact_log(log)
        return {
            "sync": 1e6 * median(syncs),
            "append": 1e6 * median(times),
            "append_cpu": 1e6 * cpu / count,
            "read_cpu": 1e6 * read / count,
            "read_compacted_cpu": 1e6 * await _read(log, count) / count,
        }


async def _append(log: Path, batch: int, count: int) -> tuple[Sequence[float], float]:
    """Append one batch after another; return how long each took, and the CPU of all."""
    batches = [records(first, batch) for first in range(0, count, batch)]
    times = []
    async with EventLogWriter.open(log, keeps_up=False) as writer:
        busy = process_time()
        for x in batches:
            began = perf_counter()
            await writer.send_many(x)
            times.append(perf_counter() - began)
        return times, process_time() - busy


def _sync(path: Path, times: int, size: int) -> Sequence[float]:
    found, data = [], bytes(size)
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            began = perf_counter()
            file.write(data)
            os.fdatasync(file.fileno())
            found.append(perf_counter() - began)
    return found


async def _read(log: Path, count: int) -> float:
    async with EventLog.open(log) as feed:
        busy = process_time()
        await seconds_of_loop(feed, count)
        return process_time() - busy


async def _compaction() -> Sequence[Result]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await create_log(log, _RANGES)
        async with EventLogWriter.open(log, keeps_up=False) as writer:
            for n in range(_FRAMES):
                await writer.send_many([Record(key=x, body=b"%d" % n) for x in _keys()])
        began = perf_counter()
        await compact_log(log)
        seconds = perf_counter() - began
        objects = sum(len([*log.glob(x)]) for x in ("compacted/*/*/*", "segments/*/*"))
    return [
        Result(
            name="log.compact.objects",
            value=objects,
            unit="objects",
            against=f"{_FRAMES} frames of {_RANGES} ranges",
            goal=at_most(objects, _MAX_OBJECTS),
        ),
        Result(name="log.compact.seconds", value=seconds, unit="s"),
    ]


def _keys() -> Sequence[str]:
    """Return a key for each range."""
    found: dict[int, str] = {}
    n = 0
    while len(found) < _RANGES:
        found.setdefault(place_of(f"k{n}", _RANGES)[0], f"k{n}")
        n += 1
    return [*found.values()]
