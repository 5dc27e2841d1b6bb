"""Which hosts of a fleet live, seen from outside: by watching what only they write."""

import asyncio
from collections.abc import Callable, Sequence

from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease, Member
from changefeed.runtime.together import together

_LOOK = 0.5


async def living_hosts(
    container: LeaseContainer,
    settings: LeaseSettings,
    *,
    watching: Callable[[Sequence[str]], None] = lambda _: None,
) -> Sequence[str]:
    """Return the names of the hosts that live: those whose records or leases move.

    A fleet that has left no records and no owners is stopped, which takes one look. Else that
    none lives takes the whole expiration to see; that one lives, until its next sign of it.
    ``watching`` is called once, with whom it waits for.
    """
    clock = asyncio.get_running_loop().time  # hosts of a machine that sleeps sleep along
    first = await _signs(container)
    if not first:
        return []
    watching(sorted({name for _, name in first}))
    until = clock() + settings.expiration
    while clock() < until:
        await asyncio.sleep(min(_LOOK, settings.expiration / 10))
        now = await _signs(container)
        moved = {name for (kind, name), sign in now.items() if first.get((kind, name)) != sign}
        if moved:
            return sorted(moved)
    return []


async def _signs(container: LeaseContainer) -> dict[tuple[str, str], object]:
    """Return the newest sign of life of each member, and of the owner of each lease."""
    members, leases = await together(container.members(), container.list())
    return {**_of_members(members), **_of_owners(leases)}


def _of_members(members: Sequence[Member]) -> dict[tuple[str, str], object]:
    return {("member", x.name): x.sign_of_life for x in members}


def _of_owners(leases: Sequence[Lease]) -> dict[tuple[str, str], object]:
    owners = {x.owner for x in leases if x.owner is not None}
    return {
        ("owner", name): sorted((x.range_id, x.sign_of_life) for x in leases if x.owner == name)
        for name in owners
    }
