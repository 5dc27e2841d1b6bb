"""How a story ends: everything works again, and the fleet must become whole, even and still.

Then it must also be quiet (nobody asks or writes more than settings say), and nothing of
what has happened may be left: no request, no record of a host that is gone, no tombstone.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from changefeed.feeds.feed import Feed, RangeId
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.load_plan import MIN_SHARE, TOLERANCE

from .process import Process
from .progress import Violation
from .stores import Records

if TYPE_CHECKING:
    from .world import World

_CALM = 120.0  # hung observers end, and who was frozen finds out
_MAX_SECONDS = 400.0
_STILL = 60.0


class Ending:
    def __init__(self, world: "World") -> None:
        self._world = world

    @property
    def _store(self) -> Records:
        return self._world.stores.records

    async def settle_down(self) -> None:
        world, clock = self._world, asyncio.get_running_loop().time
        until = clock() + _MAX_SECONDS
        await asyncio.sleep(_CALM)
        if not world.wild:
            await self._check_readers()
        if world.mixed:
            await self._delete_what_others_left()
        while clock() < until:
            await asyncio.sleep(10)
            world.raise_violation()
            await world.start_what_ended()
            if await self._unsettled() or await self._loads_to_say():
                continue
            if not await self._unfinished() and not await self._left_over():
                break
        before = await self._owners()
        world.calls.clear()
        await asyncio.sleep(_STILL)
        world.raise_violation()
        problems = [*await self._unfinished(), *await self._left_over(), *self._busy(before)]
        if problems:
            raise Violation("; ".join(problems))
        after = await self._owners()
        if before != after:
            raise Violation(f"leases still move: {before} became {after}")
        if world.graceful and world.checker.duplicates:
            raise Violation(f"{world.checker.duplicates} duplicates although nothing failed")

    async def _delete_what_others_left(self) -> None:
        """Delete by hand what processors of another kind have created late, when they woke up:
        ranges that have gone on in others, which are read (see the known limits).
        """
        leases = await self._store.list()
        for lease in leases:
            late = not lease.epoch and lease.stamp is not None and not lease.ended
            if late and any(x.owner and x.range.shares_keys_with(lease.range) for x in leases):
                self._world.tell(f"delete the lease of {lease.range_id}, which came late")
                await self._world.operators.container().delete(lease)

    async def _check_readers(self) -> None:
        """By now what the dead had has expired, and what anybody asked for has been granted. A
        range that nobody has read yet may be one that another has just gone on in.
        """
        running, owners = self._running(), await self._owners()
        unread = {x: y for x, (y, epoch) in owners.items() if epoch and y not in running}
        if unread:
            raise Violation(f"after {_CALM:.0f} s of calm nobody reads {unread}")

    async def _unfinished(self) -> list[str]:
        """Say what is left to do until the fleet is whole, even, and done."""
        world = self._world
        owners = await self._owners()
        loads = Counter(owner for owner, _ in owners.values())
        running = self._running()
        await asyncio.sleep(0)
        whole = world.source.is_read_by([x.range for x in await self._open_leases()])
        open_ranges = {x.id for x in world.source.open_ranges()}
        missing = world.checker.undelivered()
        problems = {
            "no host is left running": not running,
            f"owned is {owners}, and open are {open_ranges}": not whole,
            f"not everything is owned: {owners}": None in loads,
            f"leases are owned by hosts that do not run: {loads}": bool(set(loads) - running),
            f"the leases are not spread evenly: {loads}": bool(running)
            and not await self._unsettled()
            and not self._is_even([loads[x] for x in running]),
            f"{len(missing)} changes were never delivered: {missing[:5]}": bool(missing),
        }
        return [text for text, holds in problems.items() if holds]

    async def _unsettled(self) -> bool:
        """Whether work is still to be shared: a range that stops and is resumed again and again
        keeps the load that it had.
        """
        leases = await self._open_leases()
        by_load = any(x.host.rules.balance != "count" for x in self._our_running())
        return by_load and any(x.load or x.cooling for x in leases)

    async def _loads_to_say(self) -> bool:
        """Whether leases that heartbeats keep are still written, to say what ranges cost."""
        leases = () if self._store.renew_each else await self._open_leases()
        return any(x.load for x in leases)

    def _is_even(self, loads: Sequence[int]) -> bool:
        """Whether hosts have as many leases as others; by load, of leases that are all idle by
        now, within the tolerance of that.
        """
        fair = sum(loads) / len(loads)
        by_load = all(x.host.rules.balance != "count" for x in self._our_running())
        within = max(loads) <= TOLERANCE * fair and min(loads) >= MIN_SHARE * fair
        return max(loads) - min(loads) <= 1 or (by_load and within)

    async def _left_over(self) -> list[str]:
        """Say what is kept of what is over."""
        running = self._running()
        members = {x.name for x in await self._store.members()}
        leases = await self._store.list()
        asked = [x.range_id for x in leases if x.next_owner in running]
        waiting = [x.range_id for x in leases if not (x.epoch or x.ended)]
        problems = {
            f"records are left of {members - running}": bool(members - running),
            f"requests are left on {asked}": bool(asked),
            f"leases wait for ever: {waiting}": bool(waiting),
        }
        tombstones = await self._tombstones()
        problems[f"tombstones are left of {tombstones}"] = bool(tombstones)
        return [text for text, holds in problems.items() if holds]

    async def _tombstones(self) -> list[RangeId]:
        """Return those that nobody needs."""
        ranges = await cast("Feed", self._world.source.reader()).ranges()
        keymap = KeyMap(await self._store.list(), ranges=ranges)
        return sorted(x.range_id for x in keymap.finished({x.id for x in ranges}))

    def _busy(self, owners: Mapping[RangeId, object]) -> list[str]:
        """Say who calls more often than settings say, in a time without events."""
        calls, running = self._world.calls, self._running()
        looks = _STILL / 5.0 / 0.9 + 2
        renewals = len(owners) * (_STILL / 10.0 + 1) if self._store.renew_each else 0
        bounds = {
            "list": looks + _STILL / 20.0 + 1,
            "list_fleet": looks + 1,
            "members": looks,
            "put_member": looks,
            "ranges": _STILL / 20.0 + 2,
            "query": 2 * looks + _STILL / 20.0 + 1,
            "changes": looks + 1,
        }
        found = [
            f"{process} called {name} {calls[process, name]} times in {_STILL:.0f} s"
            for process, name in calls
            if name in bounds and calls[process, name] > bounds[name]
        ]
        for names, most in {
            ("replace", "patch"): renewals + len(running) * looks,  # with member records
            ("checkpoint", "write", "acquire", "patch_whole"): 2 * len(owners),
            ("create", "delete"): 0,
        }.items():
            total = sum(n for (_, x), n in calls.items() if x in names)
            if total > most:
                found.append(f"{len(running)} hosts called {names} {total} times")
        return found

    def _running(self) -> set[HostName | None]:
        ours = {x.host.name for x in self._our_running()}
        return {*ours, *self._world.neighbours.names}

    def _our_running(self) -> list[Process]:
        return [x for x in self._world.processes.values() if not x.task.done()]

    async def _owners(self) -> dict[RangeId, tuple[HostName | None, int]]:
        return {x.range_id: (x.owner, x.epoch) for x in await self._open_leases()}

    async def _open_leases(self) -> list[Lease]:
        """Return the leases of ranges that are to be read now."""
        return [x for x in await self._store.list() if not x.ended]
