"""What leases cost when nothing happens: calls of the container, by lease and minute.

Real hosts with their default settings, in memory and in virtual time, over empty ranges.
What cannot be less is a renewal every 10 seconds. The rest is each host's looking at the
fleet, which is shared by the leases: the more leases for each host, the less it is.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from changefeed.host.settings import LeaseSettings

from .fleets import WatchedFleet, in_virtual_time
from .result import Result, exactly

_MINUTES = 10
_SIZES = ((12, 1), (100, 1), (100, 9))


def measure() -> Sequence[Result]:
    return [x for size in _SIZES for x in in_virtual_time(partial(_at_rest, *size))]


async def _at_rest(leases: int, hosts: int) -> Sequence[Result]:
    async with WatchedFleet(leases) as fleet:
        fleet.start_watched(*(f"h{n}" for n in range(hosts)))
        await fleet.until_even(leases)
        await asyncio.sleep(60.0)
        before, lost_before = _calls(fleet)
        await asyncio.sleep(60.0 * _MINUTES)
        after, lost = _calls(fleet)
    each = {x: n / leases / _MINUTES for x, n in (after - before).items()}
    total, renewals = sum(each.values()), 60.0 / LeaseSettings().timing.renew_interval
    place = f"at_rest.{leases}_leases_{hosts}_hosts"
    return [
        Result(
            name=place,
            value=total,
            unit="calls/lease/min",
            against=f"renewals alone: {renewals:g}",
            ratio=total / renewals,
        ),
        *(
            Result(name=f"{place}.{x}", value=n, unit="calls/lease/min")
            for x, n in sorted(each.items())
        ),
        Result(
            name=f"{place}.conflicts",
            value=lost - lost_before,
            unit="lost writes",
            goal=exactly(lost - lost_before, 0),
        ),
    ]


def _calls(fleet: WatchedFleet) -> tuple[Counter[str], int]:
    watched = fleet.watched.values()
    return sum((x.calls for x in watched), Counter()), sum(x.conflicts for x in watched)
