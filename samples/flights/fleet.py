"""The fleet of hosts while a plot is played: watched, one killed, another started, stopped."""

import asyncio
import time
from collections.abc import Callable
from random import Random

from changefeed.leases.container import LeaseContainer

from .place import Place, Plan
from .processes import Processes
from .screen import Screen, Show
from .watch import Availability, availability

KILL_AT = 0.4
_LOOK_INTERVAL = 0.25
_MAX_STANDSTILL = 120.0


class Standstill(Exception):
    """The processes live and nothing moves."""


class Fleet:
    """Watches the fleet, and shows what it sees."""

    def __init__(
        self,
        hosts: Processes,
        container: LeaseContainer,
        place: Place,
        *,
        total: int,
        show: Show,
    ) -> None:
        self._hosts = hosts
        self._container = container
        self._place = place
        self._total = total
        self._show = show

    async def look(self) -> Availability:
        sight = availability(
            await self._container.list(),
            await self._container.members(),
            self._place.figures().values(),
            total=self._total,
        )
        self._show(sight, self._hosts.states)
        return sight

    async def until(self, condition: Callable[[Availability], bool]) -> Availability:
        """Watch until it is so. Raise if a process ends by itself, or if nothing moves."""
        before, since = None, time.monotonic()
        while not condition(sight := await self.look()):
            self._hosts.check()
            seen, now = (sight.done, sight.owners), time.monotonic()
            if seen != before:
                before, since = seen, now
            if now - since > _MAX_STANDSTILL:
                raise Standstill(
                    f"nothing has moved for {_MAX_STANDSTILL:g} s, at {sight.done:,} of "
                    f"{sight.total:,} changes; look at the logs (run with --keep)"
                )
            await asyncio.sleep(_LOOK_INTERVAL)
        return sight


async def start_hosts(hosts: Processes, plan: Plan, screen: Screen) -> None:
    for n in range(plan.hosts):
        await hosts.start(f"demo-{n + 1}")
    screen.say(f"started {plan.hosts} hosts{_pace(plan)}")


async def replace_one(fleet: Fleet, hosts: Processes, plan: Plan, screen: Screen) -> None:
    """Kill a host in mid-work, and start another; wait until what it had is taken over."""
    sight = await fleet.until(lambda x: x.done >= KILL_AT * x.total and any_owned(x))
    busy = [x for x in hosts.running if sight.held_by(x)]
    victim = Random(plan.seed).choice(busy)  # noqa: S311 - picks a victim, guards nothing
    await hosts.kill(victim)
    screen.say(f"killed {victim} (SIGKILL), which held {len(sight.held_by(victim))} leases")
    successor = f"demo-{plan.hosts + 1}"
    await hosts.start(successor)
    screen.say(f"started {successor}")
    await fleet.until(lambda x: not x.held_by(victim))
    screen.say(f"{victim} owns nothing any more: its leases expired and were taken over")


async def finish(fleet: Fleet, hosts: Processes, screen: Screen) -> None:
    """Wait until all is done, and stop the hosts."""
    await fleet.until(lambda x: x.done == x.total and {*hosts.running} <= x.members)
    screen.say("nothing is left to do: stopping all hosts (SIGTERM)")
    await hosts.stop_all()
    await fleet.look()
    screen.say("all hosts have stopped")


def any_owned(sight: Availability) -> bool:
    return any(x is not None for x in sight.owners.values())


def _pace(plan: Plan) -> str:
    if not plan.seconds:
        return ""
    return f", which take {plan.seconds:g} s at the least (--seconds 0 for full speed)"
