"""Which hosts of a fleet live, seen from outside: by watching what only they write."""

import asyncio
import time
from collections.abc import Callable, Sequence

from changefeed.leases.container import LeaseContainer
from changefeed.leases.expiry import ListedAt
from changefeed.leases.fleet import FleetWatch
from changefeed.leases.lease import Lease, Member
from changefeed.runtime.gather import gather_or_cancel

_LOOK = 0.5

Key = tuple[str, str, str]
"""What may show life: a host or a lease, its name, and the host."""


async def living_hosts(
    container: LeaseContainer,
    watch: FleetWatch,
    *,
    watching: Callable[[Sequence[str]], None] = lambda _: None,
    wall: Callable[[], float] = time.time,
) -> Sequence[str]:
    """Return the names of the hosts that live: those whose records or leases move.

    A fleet that has left no records and no owners is stopped, which takes one look. Else see
    ``first_signs``. ``watching`` is called once, with whom it waits for.
    """
    found = await first_signs(
        container, watch, members=lambda x: x, leases=lambda x: x, watching=watching, wall=wall
    )
    return sorted({host for _, _, host in found})


async def first_signs(
    container: LeaseContainer,
    watch: FleetWatch,
    *,
    leases: Callable[[Sequence[Lease]], Sequence[Lease]],
    members: Callable[[Sequence[Member]], Sequence[Member]] = lambda _: (),
    watching: Callable[[Sequence[str]], None] = lambda _: None,
    wall: Callable[[], float] = time.time,
) -> Sequence[Key]:
    """Watch some of the listed leases, and members; return those that show a sign of life
    first, none if all are dead.

    That all are dead takes the whole expiration to see, two renewals where stamps are very old;
    that one lives, until its next sign of it.
    """
    clock = asyncio.get_running_loop().time  # hosts of a machine that sleeps sleep along
    first: dict[Key, object] = {}
    while True:
        asked = clock()
        listed, records = await gather_or_cancel(container.list(), container.members())
        at = ListedAt(asked=asked, answered=clock(), wall=wall())
        fleet = watch.take(leases(listed), records, at)
        hosts = {x.name: x for x in members(records)}
        signs: dict[Key, object] = {
            ("lease", name, str(fleet.leases[name].owner)): life.sign_of_life
            for name, life in fleet.lives.items()
        }
        signs |= {("host", name, name): x.sign_of_life for name, x in hosts.items()}
        if signs and not first:
            watching(sorted({host for _, _, host in signs}))
        moved = [x for x, sign in signs.items() if first.setdefault(x, sign) != sign]
        all_dead = fleet.expired == fleet.lives.keys() and fleet.dead >= hosts.keys()
        if moved or all_dead:
            return moved
        await asyncio.sleep(min(_LOOK, watch.expiration / 10))
