"""Balance by load among real processes: four hosts, keys by Zipf's law, two minutes.

A host has one connection that takes 5 ms for a change, and its ranges wait for each other
there. All together need 80% of what four hosts can do, the heaviest key 38% of one host's
share, so that no key alone is too much. Placed by count, a host gets more than it can do.
Times are those that fleets have by default.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Lock
from time import sleep

import msgspec

from changefeed.feeds.eventlog.directory import create_log
from changefeed.feeds.eventlog.records import Record
from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.observer import CloseReason, Context

from .processes import Hosts, producing
from .result import Result, at_most

HOSTS, RANGES, KEYS = 4, 24, 400
_TAKES = 0.005
_USE = 0.8
_AFTER = 120.0
_SETTINGS = {"feed.poll_interval": 0.2, "web.port": "off", "log.format": "json"}
_connection = Lock()


class OneConnection:
    """The observer: it holds the host's one connection for each change, and counts keys."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def open(self, context: Context) -> None:
        path = self._directory / f"{context.host}.keys"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        for _ in changes:
            with _connection:
                sleep(_TAKES)
        keys = sorted({x.key for x in changes})
        os.write(self._file, msgspec.json.encode([context.range.id, keys]) + b"\n")

    def close(self, _: Context, __: CloseReason) -> None:
        os.close(self._file)


def measure() -> Sequence[Result]:
    by_count, by_load = (asyncio.run(_most_loaded(x)) for x in ("count", "load"))
    return [
        Result(
            name="balance.processes.count", value=by_count, unit="the most loaded host / mean"
        ),
        Result(
            name="balance.processes.load",
            value=by_load,
            unit="the most loaded host / mean, after two minutes",
            goal=at_most(by_load, 1.3),
        ),
    ]


async def _most_loaded(balance: str) -> float:
    """Return what changes come to the most loaded host, as a multiple of the mean."""
    rates = {f"key-{n}": 1 / (n + 2) for n in range(KEYS)}
    with TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        await create_log(place / "log", RANGES)
        observer = "benchmarks.skewed_processes:OneConnection"
        settings = _SETTINGS | {"leases.balance": balance}
        async with Hosts(place, observer=observer, settings=settings) as hosts:
            for n in range(HOSTS):
                await hosts.start(f"h{n}")
            rate = round(HOSTS * _USE / _TAKES)
            async with producing(place, rate, every=0.1, made=_by_rate(rates)):
                await asyncio.sleep(_AFTER)
                hosts.check()
            owned = await hosts.owned()
        return _share_of_the_most_loaded(owned, _ranges_of_keys(place), rates)


def _share_of_the_most_loaded(
    owned: Mapping[str, set[RangeId]], ranges: Mapping[str, RangeId], rates: Mapping[str, float]
) -> float:
    coming = defaultdict[RangeId, float](float)
    for key, range_id in ranges.items():
        coming[range_id] += rates[key]
    loads = [sum(coming[x] for x in found) for found in owned.values()]
    return max(loads) / (sum(loads) / len(loads))


def _ranges_of_keys(place: Path) -> Mapping[str, RangeId]:
    lines = [x for path in place.glob("*.keys") for x in path.read_bytes().splitlines()]
    batches = [msgspec.json.decode(x, type=tuple[RangeId, list[str]]) for x in lines]
    return {key: range_id for range_id, keys in batches for key in keys}


def _by_rate(rates: Mapping[str, float]) -> Callable[[int, int], Sequence[Record]]:
    """Return what makes changes of keys as often as their rates say."""
    random = Random(1)
    keys, bounds = list(rates), list(accumulate(rates.values()))

    def made(_: int, count: int) -> Sequence[Record]:
        return [
            Record(key=x, body=b"{}") for x in random.choices(keys, cum_weights=bounds, k=count)
        ]

    return made
