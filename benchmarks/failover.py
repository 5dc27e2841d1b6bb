"""A host is killed: how long until another delivers its changes, and what comes twice.

Real processes over an event log with a backlog, so that every range is in the middle of
it when the host dies. Two hosts; one is killed, the other takes over, a third is started
in its place and gets its share, and so on. The time runs from the SIGKILL to the first
change that another host delivers from a range of the dead one.

A range may be given twice at most what was delivered and not checkpointed, the batch in hand
included: ``observer.max_unacknowledged``, which is one batch here.
"""

import asyncio
from collections.abc import Sequence
from statistics import median

from changefeed.feeds.feed import RangeId

from .deliveries import Delivery, by_range, by_turn
from .processes import BALANCE_INTERVAL, EXPIRATION, PAGE, Hosts, hosts_over, until
from .result import Result, within

_RANGES, _KILLS = 12, 3
_SECONDS_PER_BATCH = 0.05
_CHANGES = 600_000  # more than is read in the time: 2000 a second of each range


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    first: list[float] = []
    last: list[float] = []
    async with hosts_over(
        ranges=_RANGES, changes=_CHANGES, seconds=_SECONDS_PER_BATCH
    ) as hosts:
        await hosts.start("h0")
        for n in range(_KILLS):
            await hosts.start(f"h{n + 1}")
            owned = await hosts.until_even(_RANGES)
            await asyncio.sleep(0.3 + 0.37 * n)  # not always in the same phase
            waits = await kill_and_wait(hosts, f"h{n}", owned[f"h{n}"])
            first.append(min(waits))
            last.append(max(waits))
        deliveries = hosts.deliveries()
    limit = EXPIRATION + 1.1 * BALANCE_INTERVAL  # the interval is jittered by a tenth
    words = "expiration + one balancing interval, at its longest"
    return [
        Result(name="failover.time.median", value=median(first), unit="s"),
        within("failover.time.worst", first, limit, "s", words),
        within("failover.time.last_range.worst", last, limit, "s", words),
        *_twice(deliveries),
    ]


async def kill_and_wait(hosts: Hosts, name: str, ranges: set[RangeId]) -> list[float]:
    """Kill a host; return for each of its ranges when another delivered from it, in s."""
    killed = await hosts.kill(name)
    found: dict[RangeId, float] = {}

    def all_taken_over() -> bool:
        for x in hosts.deliveries():
            if x.host != name and x.range_id in ranges and x.began > killed:
                found.setdefault(x.range_id, x.began - killed)
        return found.keys() == ranges

    await until(all_taken_over, hosts)
    return list(found.values())


def _twice(deliveries: Sequence[Delivery]) -> Sequence[Result]:
    """Hold the duplicates of each range, at each change of its host, against the window."""
    at_once = [x for batches in by_range(deliveries).values() for x in by_turn(batches)]
    total = sum(at_once)
    return [
        Result(
            name="failover.duplicates",
            value=total / _KILLS,
            unit="changes for each kill",
            against=f"the whole window of {_RANGES // 2} ranges: {_RANGES // 2 * PAGE}",
            ratio=total / _KILLS / (_RANGES // 2 * PAGE),
        ),
        within(
            "failover.duplicates.worst_range",
            at_once,
            PAGE,
            "changes",
            "observer.max_unacknowledged",
        ),
    ]
