"""By count and by load, side by side, over a feed whose ranges differ: 32 ranges, 8 hosts.

The ranges get changes as Zipf's law has it: the first as many as keep a host busy for 0.9 of
each second, the second half of that, and so on; all together 46% of what eight hosts can do.
A host works on one batch at a time, as a process with one core does. Real hosts in memory and
in virtual time: every number is exact, and the same on every machine.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context, Observer
from changefeed.testing.fleet import Fleet, Sections

from .fleets import in_virtual_time
from .result import Result, at_most

RANGES, HOSTS = 32, 8
_SECONDS = 900
_EACH = 0.05
_HEAVIEST = 0.9 / _EACH


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``worst`` is the lag of the range that was furthest behind, in changes: at any time, and
    when the writing ended; ``drained`` are the seconds from then until nothing was left.
    """

    worst: int
    worst_at_end: int
    drained: float
    moves: int


def measure() -> Sequence[Result]:
    by_count, by_load = (in_virtual_time(partial(_story, x)) for x in ("count", "load"))
    found = []
    for name, unit in {
        "worst": "changes that one range was behind, at most",
        "worst_at_end": "changes that one range was behind after 15 minutes",
        "drained": "virtual s until nothing was left",
        "moves": "leases moved",
    }.items():
        before, after = getattr(by_count, name), getattr(by_load, name)
        counted = f"balance.skewed.count.{name}"
        found += [
            Result(name=counted, value=before, unit=unit),
            Result(
                name=f"balance.skewed.load.{name}",
                value=after,
                unit=unit,
                against=counted if before else None,
                ratio=after / before if before else None,
                goal=at_most(after, RANGES if name == "moves" else before / 2),
            ),
        ]
    return found


class _Work:
    """What is written to each range, and done of it by hosts of one core each."""

    def __init__(self) -> None:
        self.written = [0] * RANGES
        self.done = [0] * RANGES
        self.opened = 0
        self._cores: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def behind(self) -> int:
        return max(x - y for x, y in zip(self.written, self.done, strict=True))

    def observer(self) -> type[Observer]:
        work = self

        class Working:
            async def open(self, _: Context) -> None:
                work.opened += 1

            async def process(self, context: Context, changes: Sequence[Change]) -> None:
                async with work._cores[context.host]:
                    await asyncio.sleep(_EACH * len(changes))
                work.done[int(context.range.id.removeprefix("r"))] = changes[-1].sequence

            async def close(self, context: Context, reason: CloseReason) -> None:
                pass

        return Working

    async def write(self, feed: MemoryFeed) -> int:
        """Write for a quarter of an hour; return the worst lag meanwhile."""
        ranks = Random(1).sample(range(RANGES), k=RANGES)
        worst = 0
        for second in range(_SECONDS):
            for n, rank in enumerate(ranks):
                while self.written[n] < _HEAVIEST / (rank + 1) * second:
                    self.written[n] = feed.append("key", range_id=RangeId(f"r{n}")).sequence
            await asyncio.sleep(1.0)
            worst = max(worst, self.behind)
        return worst


async def _story(balance: str) -> Outcome:
    clock = asyncio.get_running_loop().time
    sections: Sections = {
        "leases": {"balance": balance},
        "feed": {"page_size": 20, "poll_interval": 1.0},
    }
    feed, work = MemoryFeed(RANGES), _Work()
    hosts = Fleet(feed, MemoryLeases(), settings=sections, observer=work.observer())
    async with hosts as fleet:
        for n in range(HOSTS):
            fleet.start(f"h{n}")
        worst = await work.write(feed)
        ended, worst_at_end = clock(), work.behind
        while work.behind:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(1.0)
        outcome = Outcome(
            worst=worst,
            worst_at_end=worst_at_end,
            drained=clock() - ended,
            moves=work.opened - RANGES,
        )
        for host in fleet.hosts.values():
            host.stop()
        await asyncio.wait(fleet.running.values())
        return outcome
