"""More parallel than the feed has ranges: four ranges, eight hosts, observers that wait.

Each change takes its observer 5 ms. The feed is Cosmos DB's as far as its ranges go, in memory,
and time is virtual: every number is exact, and the same on every machine. What a part costs
the account (a request of its own) is not in it.

With ``leases.balance = split`` (and a cooldown of 10 s, as the backlog is short) four become
eight, one for each host: it shares work, and makes no more ranges than that takes.

Then what balance by load and splitting cost where loads are even, which should be nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet, Sections
from tests.support.shifting_feed import ShiftingReader, ShiftingStore, hash_of

from .fleets import Watched, in_virtual_time
from .result import Goal, Result, at_least, at_most

_HOSTS, _RANGES, _PARTS = 8, 4, 32
_EACH = 0.005
_BACKLOG = 64_000
_KEYS = 20_000
_GOAL = 7.0
_COOLDOWN = 10.0
_EVEN_RANGES, _EVEN_MINUTES, _WARM_UP = 16, 10, 180
_EVEN_EACH = 0.1
_EVEN_PACE = 5  # changes of a range and second: each keeps its owner busy for half of the time


def measure() -> Sequence[Result]:
    return [*_parallel(), *_even()]


def _feed(ranges: int) -> ShiftingStore:
    store = ShiftingStore()
    while len(store.physical) < ranges:
        for name in [x.id for x in store.physical]:
            store.split(name)
    return store


# a backlog


def _parallel() -> Sequence[Result]:
    stories: dict[str, Sections] = {
        "4_ranges": {},
        "4_ranges_split": {
            "leases": {"balance": "split"},
            "timing": {"cooldown": _COOLDOWN},
        },
        "32_parts": {"feed": {"parallelism": _PARTS}},
    }
    took = {x: in_virtual_time(partial(_drain, y)) for x, y in stories.items()}
    one = took["4_ranges"]
    goals: dict[str, Goal | None] = {"32_parts": at_least(one / took["32_parts"], _GOAL)}
    return [
        Result(
            name=f"scale.parallel.{name}",
            value=seconds,
            unit=f"virtual s for {_BACKLOG} changes of {1000 * _EACH:g} ms, {_HOSTS} hosts",
            against=None if name == "4_ranges" else "4_ranges, times as fast",
            ratio=None if name == "4_ranges" else one / seconds,
            goal=goals.get(name),
        )
        for name, seconds in took.items()
    ]


async def _drain(settings: Sections) -> float:
    """Return the seconds from the start of all hosts until the last change is done."""
    store, clock = _feed(_RANGES), asyncio.get_running_loop().time
    for n in range(_BACKLOG):
        store.append(f"key {n % _KEYS}", b"")
    sections = {**settings, "feed": {"page_size": 100, **settings.get("feed", {})}}
    async with Fleet(
        ShiftingReader(store), MemoryLeases(), settings=sections, pace=_EACH
    ) as fleet:
        for n in range(_HOSTS):
            fleet.start(f"h{n}")
        while len(fleet.log.changes) < _BACKLOG:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.1)
        seconds = clock()
        assert not fleet.log.repeats
        for host in fleet.hosts.values():
            host.stop()
        await asyncio.wait(fleet.running.values())
    return seconds


# even loads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """``calls`` are of the container, for each host and minute."""

    calls: float
    moves: int
    ranges: int


def _even() -> Sequence[Result]:
    kinds: dict[str, Sections] = {
        "count": {},
        "load": {"leases": {"balance": "load"}},
        "split": {"leases": {"balance": "split"}},
    }
    found = {x: in_virtual_time(partial(_even_story, y)) for x, y in kinds.items()}
    counted = found["count"].calls
    results = []
    for name, cost in found.items():
        place = f"scale.even.{name}"
        base = name == "count"
        results += [
            Result(
                name=f"{place}.calls",
                value=cost.calls,
                unit="container calls/host/min",
                against=None if base else "scale.even.count.calls",
                ratio=None if base else cost.calls / counted,
                goal=None if base else at_most(cost.calls, 1.02 * counted),
            ),
            Result(
                name=f"{place}.moves", value=cost.moves, unit="", goal=at_most(cost.moves, 0)
            ),
            Result(
                name=f"{place}.splits",
                value=cost.ranges - _EVEN_RANGES,
                unit="ranges more",
                goal=at_most(cost.ranges - _EVEN_RANGES, 0),
            ),
        ]
    return results


async def _even_story(settings: Sections) -> _Cost:
    store = _feed(_EVEN_RANGES)
    sections = {**settings, "feed": {"page_size": 100}}
    container = MemoryLeases()
    keys = _a_key_of_each(store)
    async with Fleet(
        ShiftingReader(store), container, settings=sections, pace=_EVEN_EACH
    ) as fleet:
        watched = {f"h{n}": Watched(container, f"h{n}") for n in range(_HOSTS)}
        for name, theirs in watched.items():
            fleet.start(name, container=cast("Any", theirs))
        await fleet.balanced()
        await _write(store, keys, _WARM_UP)
        opened = len(fleet.log.opened)
        before = sum(x.calls.total() for x in watched.values())
        await _write(store, keys, 60 * _EVEN_MINUTES)
        calls = sum(x.calls.total() for x in watched.values()) - before
        cost = _Cost(
            calls=calls / _HOSTS / _EVEN_MINUTES,
            moves=len(fleet.log.opened) - opened,
            ranges=len(await fleet.owners()),
        )
        for host in fleet.hosts.values():
            host.stop()
        await asyncio.wait(fleet.running.values())
    return cost


async def _write(store: ShiftingStore, keys: Sequence[str], seconds: int) -> None:
    for _ in range(seconds):
        for key in keys:
            for _ in range(_EVEN_PACE):
                store.append(key, b"")
        await asyncio.sleep(1.0)


def _a_key_of_each(store: ShiftingStore) -> Sequence[str]:
    """Return a key of each range of the feed."""
    keys = [f"key {n}" for n in range(_KEYS)]
    return [next(y for y in keys if x.low <= hash_of(y) < x.high) for x in store.physical]
