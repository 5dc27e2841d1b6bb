"""Which hosts of a fleet live, seen from outside: by watching what only they write."""

import asyncio
import time
from collections.abc import Callable, Sequence

from changefeed.leases.container import LeaseContainer
from changefeed.leases.expiry import ExpiryWatch, Living, Moment
from changefeed.leases.lease import Lease, Member
from changefeed.leases.life import Heartbeats
from changefeed.runtime.together import together

_LOOK = 0.5

Key = tuple[str, str, str]
"""What may show life: a host or a lease, its name, and the host."""


async def living_hosts(
    container: LeaseContainer,
    watch: ExpiryWatch[Key],
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
    watch: ExpiryWatch[Key],
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
    heartbeats = Heartbeats()
    first: dict[Key, object] = {}
    while True:
        asked = clock()
        listed, records = await together(container.list(), container.members())
        at = Moment(asked=asked, answered=clock(), wall=wall())
        owned = {x.range_id: x for x in leases(listed) if x.owner is not None}
        alive: dict[Key, Living] = {
            ("lease", name, str(owned[name].owner)): life
            for name, life in heartbeats.lives(owned.values(), records).items()
        }
        alive |= {("host", x.name, x.name): x for x in members(records)}
        if alive and not first:
            watching(sorted({host for _, _, host in alive}))
        moved = [
            x for x, y in alive.items() if first.setdefault(x, y.sign_of_life) != y.sign_of_life
        ]
        if moved or watch.expired(alive, at) == alive.keys():
            return moved
        await asyncio.sleep(min(_LOOK, watch.expiration / 10))
