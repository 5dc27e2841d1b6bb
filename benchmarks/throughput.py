"""Changes a second through one host, with an observer that does nothing.

Against a bare loop that reads the same event log: what a host adds is leases, checkpoints,
order, retries, metrics. And the bare loop against a plain ``select`` over the same file:
what the feed adds is mostly the making of a ``Change`` of each record, where the select
leaves blocks of bytes as they are.

The host is measured with the settings as they are (a checkpoint after each batch of up to
1000 changes), and with one every five seconds, which tells what checkpoints cost. Leases
are in a SQLite file. Rounds take turns; the ratio is the median of those of each round.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from feeds.eventlog import EventLog
from leases.sqlite import SqliteLeases

from .logs import make_log, seconds_to_select
from .one_host import Parts, Until, seconds_of_host, seconds_of_loop
from .result import Result, at_least

_CHANGES = 240_000
_ROUNDS = 4  # after one to warm up
_PARTITIONS = (1, 12, 96)
_EVERY_BATCH: Parts = {}
_BY_INTERVAL: Parts = {"observer": {"checkpoint": "interval"}}

Seconds = Mapping[str, float]


def measure() -> Sequence[Result]:
    return [x for parts in _PARTITIONS for x in asyncio.run(_at(parts))]


async def _at(parts: int) -> Sequence[Result]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await make_log(log, parts=parts, changes=_CHANGES)
        rounds = [await _round(log) for _ in range(_ROUNDS + 1)][1:]
    name = f"throughput.{parts}"
    return [
        _rate(f"{name}.select", rounds, "select"),
        _rate(f"{name}.loop", rounds, "loop", f"{name}.select"),
        _rate(f"{name}.host", rounds, "host", f"{name}.loop", goal=0.9),
        _rate(f"{name}.host_by_interval", rounds, "host_by_interval", f"{name}.loop", goal=0.9),
    ]


async def _round(log: Path) -> Seconds:
    seconds = {"select": seconds_to_select(log)}
    async with EventLog.open(log) as feed:
        seconds["loop"] = await seconds_of_loop(feed, _CHANGES)
        seconds["host"] = await _host(log, feed, _EVERY_BATCH)
        seconds["host_by_interval"] = await _host(log, feed, _BY_INTERVAL)
    return seconds


async def _host(log: Path, feed: EventLog, parts: Parts) -> float:
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        async with SqliteLeases(Path(place) / "leases.db") as container:
            return await seconds_of_host(feed, container, parts, Until(_CHANGES))


def _rate(
    name: str,
    rounds: Sequence[Seconds],
    what: str,
    against: str | None = None,
    *,
    goal: float | None = None,
) -> Result:
    ratio = None
    if against is not None:
        other = against.rpartition(".")[2]
        ratio = median(x[other] / x[what] for x in rounds)
    return Result(
        name=name,
        value=_CHANGES / median(x[what] for x in rounds),
        unit="changes/s",
        against=against,
        ratio=ratio,
        goal=None if goal is None or ratio is None else at_least(ratio, goal),
    )
