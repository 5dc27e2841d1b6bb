"""Ranges move from one living host to another: what comes twice, and who has to wait.

Real processes at the live end of an event log, into which changes are written all the
while. One host has twelve ranges; a second joins and gets six of them, works for a while
and is told to stop, and the first takes them back. That, several times.

The pause of a range that moves runs from the end of the last batch on its old host to the
beginning of the first on its new one. For ranges that stay, the changes delivered while
others move are counted, and held against windows of the same length right before.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from changefeed.feeds.feed import RangeId

from .deliveries import Delivery, by_range, duplicates
from .processes import hosts_over, producing
from .result import Result, at_least, exactly

_RANGES, _ROUNDS, _RATE = 12, 3, 6_000
_WINDOWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A range that came from one host to another."""

    range_id: RangeId
    to: str
    left: float
    came: float

    @property
    def pause(self) -> float:
        return self.came - self.left


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with hosts_over(ranges=_RANGES) as hosts:
        async with producing(hosts.place, _RATE):
            await hosts.start("stays")
            await hosts.until_even(_RANGES)
            for n in range(_ROUNDS):
                await hosts.start(f"guest{n}")
                await hosts.until_even(_RANGES)
                await asyncio.sleep(1.5)
                await hosts.stop(f"guest{n}")
                await hosts.until_even(_RANGES)
                await asyncio.sleep(1.5)
        await asyncio.sleep(0.5)
        await hosts.stop("stays")
        deliveries = hosts.deliveries()
    twice = duplicates(deliveries)
    turns = _turns(deliveries)
    moved = [x for x in turns if x.to != "stays"]
    returned = [x for x in turns if x.to == "stays"]
    return [
        Result(name="handoff.moves", value=len(turns), unit="moves"),
        Result(name="handoff.duplicates", value=twice, unit="changes", goal=exactly(twice, 0)),
        *_pauses("handoff.pause", moved),
        *_pauses("handoff.pause_at_stop", returned),
        *_others(deliveries, moved),
    ]


def _turns(deliveries: Sequence[Delivery]) -> Sequence[Turn]:
    return [
        Turn(range_id=name, to=after.host, left=before.ended, came=after.began)
        for name, batches in by_range(deliveries).items()
        for before, after in pairwise(batches)
        if before.host != after.host and before.ended is not None
    ]


def _pauses(name: str, turns: Sequence[Turn]) -> Sequence[Result]:
    pauses = [x.pause for x in turns]
    return [
        Result(name=f"{name}.median", value=median(pauses), unit="s"),
        Result(name=f"{name}.worst", value=max(pauses), unit="s"),
    ]


def _others(deliveries: Sequence[Delivery], moved: Sequence[Turn]) -> Sequence[Result]:
    """Compare the ranges that stay, while others move, with the same ranges before."""
    during, before, lowest = [], [], []
    for guest in sorted({x.to for x in moved}):
        turns = [x for x in moved if x.to == guest]
        begin, end = min(x.left for x in turns), max(x.came for x in turns)
        stay = {x.range_id for x in deliveries} - {x.range_id for x in turns}
        batches = [x for x in deliveries if x.range_id in stay]
        length = end - begin
        rates = [
            _changes(batches, begin - n * length, length) / length
            for n in range(1, _WINDOWS + 1)
        ]
        during.append(_changes(batches, begin, length) / length)
        before.append(median(rates))
        lowest.append(min(rates) / median(rates))
    ratio = median(x / y for x, y in zip(during, before, strict=True))
    noise = median(lowest)
    return [
        Result(name="handoff.others.before", value=median(before), unit="changes/s"),
        Result(
            name="handoff.others.during",
            value=median(during),
            unit="changes/s",
            against="handoff.others.before",
            ratio=ratio,
            goal=at_least(ratio, round(min(noise, 1.0) - 0.005, 2)),
        ),
    ]


def _changes(deliveries: Sequence[Delivery], begin: float, length: float) -> int:
    return sum(x.changes for x in deliveries if begin <= x.began < begin + length)
