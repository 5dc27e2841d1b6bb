"""Sixteen keys of a range at once against one after the other.

The observer waits 5 ms with each change, as for an answer of another system. One range of
an event log, whose changes come from 5000 keys; leases in a SQLite file.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from changefeed.log.directory.feed import EventLog
from tests.support.sqlite_leases import SqliteLeases

from .logs import make_log
from .one_host import Until, seconds_of_host
from .result import Result

_CHANGES = 600
_PAUSE = 0.005
_LANES = 16
_ROUNDS = 3


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await make_log(log, parts=1, changes=_CHANGES)
        rounds = [(await _seconds(log, 1), await _seconds(log, _LANES)) for _ in range(_ROUNDS)]
    ratio = median(one / many for one, many in rounds)
    return [
        Result(
            name="keys.1",
            value=_CHANGES / median(one for one, _ in rounds),
            unit="changes/s",
            against=f"one change each {_PAUSE * 1000:g} ms: {1 / _PAUSE:g}/s",
            ratio=_CHANGES * _PAUSE / median(one for one, _ in rounds),
        ),
        Result(
            name=f"keys.{_LANES}",
            value=_CHANGES / median(many for _, many in rounds),
            unit="changes/s",
            against="keys.1",
            ratio=ratio,
        ),
    ]


async def _seconds(log: Path, concurrency: int) -> float:
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        async with EventLog.open(log) as feed, SqliteLeases(Path(place) / "l.db") as container:
            until = Until(_CHANGES, pause=_PAUSE)
            parts = {"observer": {"concurrency": concurrency}}
            return await seconds_of_host(feed, container, parts, until)
