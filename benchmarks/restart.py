"""Three hosts are restarted one after the other, as an upgrade does it: what comes twice.

Real processes at the live end of an event log, into which changes are written all the
while. Each host is told to stop (SIGTERM), has ended, and is started again under its name.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from .deliveries import by_range, duplicates
from .processes import hosts_over, producing
from .result import Result, exactly

_RANGES, _RATE = 12, 6_000
_NAMES = ("anna", "ben", "cleo")


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with hosts_over(ranges=_RANGES) as hosts:
        async with producing(hosts.place, _RATE):
            for name in _NAMES:
                await hosts.start(name)
            await hosts.until_even(_RANGES)
            for name in _NAMES:
                await hosts.stop(name)
                await hosts.start(name)
                await hosts.until_even(_RANGES)
        await asyncio.sleep(0.5)
        for name in _NAMES:
            await hosts.stop(name)
        deliveries = hosts.deliveries()
    twice = duplicates(deliveries)
    changes = sum(x.changes for x in deliveries)
    gaps = [
        after.began - before.began
        for batches in by_range(deliveries).values()
        for before, after in pairwise(batches)
    ]
    return [
        Result(name="restart.changes", value=changes - twice, unit="changes"),
        Result(name="restart.duplicates", value=twice, unit="changes", goal=exactly(twice, 0)),
        Result(name="restart.longest_pause", value=max(gaps), unit="s"),
    ]
