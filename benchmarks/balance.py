"""How many rounds and moves it takes until 100 leases of one host are even among nine.

Real hosts with their default settings, in memory and in virtual time: every number is
exact, and the same on every machine. A round is a look of a host in which it asked for
leases; a move is an acquisition: each ends one.
"""

import asyncio
from collections.abc import Sequence

from .fleets import WatchedFleet, in_virtual_time
from .result import Result, exactly

LEASES, HOSTS = 100, 9
FEWEST_MOVES = LEASES - -(-LEASES // HOSTS)  # all but what the first host may keep


def measure() -> Sequence[Result]:
    return in_virtual_time(_from_one_host_to_nine)


async def _from_one_host_to_nine() -> Sequence[Result]:
    clock = asyncio.get_running_loop().time
    async with WatchedFleet(LEASES) as fleet:
        fleet.start_watched("h1")
        await fleet.until_even(LEASES)
        acquired = fleet.acquisitions
        fleet.start_watched(*(f"h{n}" for n in range(2, HOSTS + 1)))
        began = clock()
        await fleet.until_even(LEASES)
        seconds = clock() - began
        moves = fleet.acquisitions - acquired
        rounds = max(len(set(x.asked_at)) for x in fleet.watched.values())
        await asyncio.sleep(600.0)
        later = fleet.acquisitions - acquired - moves
    return [
        Result(name="balance.rounds", value=rounds, unit="rounds", goal=exactly(rounds, 1)),
        Result(
            name="balance.moves",
            value=moves,
            unit="moves",
            against=f"the fewest possible: {FEWEST_MOVES}",
            ratio=moves / FEWEST_MOVES,
            goal=exactly(moves, FEWEST_MOVES),
        ),
        Result(
            name="balance.later_moves",
            value=later,
            unit="moves in 10 minutes after",
            goal=exactly(later, 0),
        ),
        Result(
            name="balance.time",
            value=seconds,
            unit="virtual s",
        ),
    ]
