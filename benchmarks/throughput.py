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

from changefeed.log.directory.feed import EventLog
from tests.support.sqlite_leases import SqliteLeases

from .logs import make_log, seconds_to_read
from .one_host import Parts, Until, seconds_of_host, seconds_of_loop
from .result import Result, by_rounds

_ROUNDS = 4  # after one to warm up
_CHANGES = {1: 240_000, 12: 240_000, 96: 480_000}
"""By the number of partitions: enough that the ends of 96 ranges do not count for much."""
_EVERY_BATCH: Parts = {}
_BY_INTERVAL: Parts = {"observer": {"checkpoint": 5}}

Rates = Mapping[str, float]


def measure() -> Sequence[Result]:
    return [x for parts, changes in _CHANGES.items() for x in asyncio.run(_at(parts, changes))]


async def _at(parts: int, changes: int) -> Sequence[Result]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await make_log(log, parts=parts, changes=changes)
        rounds = [await _round(log, changes) for _ in range(_ROUNDS + 1)][1:]
    name = f"throughput.{parts}"
    return [
        by_rounds(name, rounds, "bytes", "changes/s"),
        by_rounds(name, rounds, "loop", "changes/s", against="bytes"),
        by_rounds(name, rounds, "host", "changes/s", against="loop", goal=0.9),
        by_rounds(name, rounds, "host_by_interval", "changes/s", against="loop", goal=0.9),
    ]


async def _round(log: Path, changes: int) -> Rates:
    async with EventLog.open(log) as feed:
        seconds = {
            "bytes": seconds_to_read(log),
            "loop": await seconds_of_loop(feed, changes),
            "host": await _host(log, feed, _EVERY_BATCH, changes),
            "host_by_interval": await _host(log, feed, _BY_INTERVAL, changes),
        }
    return {what: changes / x for what, x in seconds.items()}


async def _host(log: Path, feed: EventLog, parts: Parts, changes: int) -> float:
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        async with SqliteLeases(Path(place) / "leases.db") as container:
            return await seconds_of_host(feed, container, parts, Until(changes))
