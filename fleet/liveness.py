"""Which hosts of a fleet live, seen from outside: by watching what only they write."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import FleetWatch, ListedAt
from changefeed.leases.lease import Lease
from changefeed.runtime.calls import gather_or_cancel

_LOOK = 0.5


async def living_hosts(
    container: LeaseContainer,
    watch: FleetWatch,
    *,
    owning: Callable[[Lease], bool] | None = None,
    watching: Callable[[Sequence[str]], None] = lambda _: None,
    wall: Callable[[], float] = time.time,
) -> Mapping[str, str]:
    """Return the hosts that show a sign of life first, each with the range whose lease shows
    it, or ``""`` where its record does; none if all are dead. With ``owning``, only the owners
    of such leases are looked at.

    That all are dead takes the whole expiration to see, two renewals where stamps are very old;
    that one lives, until its next sign of it. A fleet that has left no records and no owners is
    stopped, which takes one look. ``watching`` is called once, with whom it waits for.
    """
    clock = asyncio.get_running_loop().time  # hosts of a machine that sleeps sleep along
    first: dict[tuple[str, str], object] = {}
    while True:
        asked = clock()
        listed, records = await gather_or_cancel(container.list(), container.members())
        at = ListedAt(asked=asked, answered=clock(), wall=wall())
        fleet = watch.take([x for x in listed if owning is None or owning(x)], records, at)
        hosts = fleet.members if owning is None else {}
        signs: dict[tuple[str, str], object] = {
            (str(fleet.leases[name].owner), name): life.sign_of_life
            for name, life in fleet.lives.items()
        }
        signs |= {(name, ""): x.sign_of_life for name, x in hosts.items()}
        if signs and not first:
            watching(sorted({host for host, _ in signs}))
        moved = [x for x, sign in signs.items() if first.setdefault(x, sign) != sign]
        if moved or (fleet.expired == fleet.lives.keys() and fleet.dead >= hosts.keys()):
            return dict(moved)
        await asyncio.sleep(min(_LOOK, watch.expiration / 10))
