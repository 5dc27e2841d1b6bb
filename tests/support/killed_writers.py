"""Writers of one event log, killed at random moments: python -m tests.support.killed_writers.

Each writer is a fork of this process, so that a thousand take a minute or two. It says which
batch it begins and which is acknowledged; it compacts, and deletes what is compacted, all the
time. Every so many kills the log is read: each acknowledged batch is there once and whole, in
order; one that was under way once at the most.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import Final
from unittest.mock import patch

from changefeed.log.directory import maintenance
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from tests.support.processes import PATIENCE

_PARTS: Final = 3
_KEYS: Final = [f"k{n}" for n in range(9)]
"""Some in each part: a batch is whole in all of them, or in none."""
_READ_EVERY: Final = 25
_LONGEST: Final = 0.12
"""Seconds that a writer has at most, to open and write in; or after it has compacted."""
_COMPACTING: Final = 0.25
"""So many of them are let live until they have compacted, however slow the machine is."""


class Lost(Exception):
    """The log is not what its writers were told. The text says which batch is wrong."""


async def _write(log: Path, batch: int, said: int) -> None:
    async with EventLogWriter.open(log) as writer:
        while True:
            os.write(said, b"b%d\n" % batch)
            await writer.send_many([Record(key=x, body=b"%d" % batch) for x in _KEYS])
            os.write(said, b"a%d\n" % batch)
            batch += 1


def _runs(log: Path) -> int:
    return len([*log.glob("compacted/*/*/*")])


def _killed(log: Path, batch: int, seconds: float, *, compacting: bool) -> Sequence[str]:
    """Let a writer begin with a batch, and kill it; return what it has said."""
    before, end = _runs(log), time.monotonic() + PATIENCE
    with TemporaryFile("w+") as said:  # a pipe is full before a slow machine compacts
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                asyncio.run(_write(log, batch, said.fileno()))
            os._exit(1)
        while compacting and _runs(log) == before and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        words = said.read().split()
    if not os.WIFSIGNALED(status):
        raise Lost(f"the writer of batch {batch} has ended by itself")
    if compacting and _runs(log) == before:
        raise Lost(f"the writer of batch {batch} has compacted nothing")
    return words


async def _read(log: Path) -> Mapping[str, Sequence[int]]:
    """Return the batches that each key has, in order."""
    found: dict[str, list[int]] = {x: [] for x in _KEYS}
    async with EventLog.open(log) as feed:
        for x in await feed.ranges():
            after = await feed.start(x, "beginning")
            while (page := await feed.read(x, after, 1000)).changes:
                after = page.position
                for change in page.changes:
                    found[change.key].append(int(change.body))
    return found


def _check(found: Mapping[str, Sequence[int]], acknowledged: set[int]) -> None:
    batches = {n for x in found.values() for n in x}
    if any(list(x) != sorted(batches) for x in found.values()):
        raise Lost("a batch is torn, repeated, or out of order")
    lost = acknowledged - batches
    if lost:
        raise Lost(f"batch {min(lost)} was acknowledged, and {len(lost)} are lost")


@contextmanager
def _compacting_all_the_time() -> Iterator[None]:
    often = patch.object(maintenance, "_EVERY", 0.005)
    with patch.object(maintenance, "COMPACTED_AT", 64), often:
        yield


def main(log: Path, kills: int, seed: int) -> str:
    """Kill so many writers; raise ``Lost``. Return what was lived through."""
    random, acknowledged, batch = Random(seed), set[int](), 1
    asyncio.run(create_log(log, _PARTS))
    for n in range(1, kills + 1):
        with _compacting_all_the_time():
            seconds, compacting = random.uniform(0, _LONGEST), random.random() < _COMPACTING
            words = _killed(log, batch, seconds, compacting=compacting)
        for word in words:
            number = int(word[1:])
            batch = max(batch, number + 1)
            if word[0] == "a":
                acknowledged.add(number)
        if n % _READ_EVERY == 0 or n == kills:
            _check(asyncio.run(_read(log)), acknowledged)
    return f"{kills} kills, {len(acknowledged)} batches acknowledged, {_runs(log)} runs"


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])) + "\n")
