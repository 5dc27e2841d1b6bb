"""Changes that end each process which is given them, and whoever kills whole fleets.

A process that a change ends is gone as after a SIGKILL, in the midst of the call. It is started
again: at once, where a supervisor does that, and tells it how those before it have ended.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from changefeed.host.child_start import ChildStart

from .blame import KILLED
from .probes import Probe
from .progress import Violation

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_SHARE = 0.35
_ONE_OF = 60
"""One change of so many kills, until there are enough of them."""
_LONGEST = 900.0
"""Seconds, once all works again, until each is put aside, or its range paused."""
_HELP = 0.5
"""How often another host comes as well, which asks for what the dead one has."""
_LOOK = 0.05
_IN_A_ROW = 3
_EXPIRED = 45.0
"""Seconds after which the leases of a host that stands still are others'."""


class Killers:
    """Those of one world. ``on_failure`` says what is done with them, where there are any."""

    def __init__(self, world: "World", *, rough: bool) -> None:
        self._world = world
        self._random = random = Random(f"killers {world.seed}")
        some = random.choice([1, 1, 2, 3])
        self.on_failure = random.choice(["dead-letter", "dead-letter", "retry", "stop-range"])
        self.most_unacknowledged = random.choice([7, 30])
        """Care for a thousand changes would take longer than a story."""
        self._left = some if rough and random.random() < _SHARE else 0
        self._supervised = random.random() < 0.5
        self._ended: dict[str, dict[str, str]] = {}
        self.numbers = set[int]()

    @property
    def are_to_come(self) -> bool:
        return self._left > 0

    def appended(self, number: int) -> None:
        """A change was written to the feed: it may be one of them."""
        if self._left and self._random.random() < 1 / _ONE_OF:
            self._left -= 1
            self.numbers.add(number)
            self._world.tell(f"change {number} kills whoever gets it")

    def start_of(self, name: str, process_id: str) -> ChildStart:
        """Say how a process is started."""
        dead = dict(self._ended.get(name, {})) if self._supervised else {}
        return ChildStart(name=name, incarnation=process_id, dead=dead)

    def ended(self, process: "Process", how: str) -> None:
        """A process was killed, by a signal."""
        self._ended.setdefault(process.name, {})[process.id] = how

    def strike(self, process_id: str, number: int) -> None:
        """End a process in a call about a change that kills."""
        world, random = self._world, self._random
        process = world.strike(process_id, f"change {number}")
        if process is not None:
            delay = random.uniform(0, 2 if self._supervised else 40)
            world.begin(self._later(process.name, delay))
            if random.random() < _HELP:
                world.begin(self._later(world.some_host(random), 0))

    async def _later(self, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        self._world.start(name)

    async def kill_all(self) -> None:
        """Kill the whole fleet, as a deployment that does not wait: three times in a row. Some
        hosts stand still instead.
        """
        world, random = self._world, self._random
        noted = False
        for _ in range(_IN_A_ROW):
            noted = await self._some_note(random.choice([2.0, 60.0]) * random.random())
            for process in [*world.processes.values()]:
                if random.random() < 0.15:
                    world.begin(world.faults.freeze_one(process, _EXPIRED))
                else:
                    world.kill(process)
                    world.begin(self._later(process.name, random.uniform(0, 1)))
        world.checker.hit(Probe.STORM_OF_KILLS, where=noted)

    async def _some_note(self, seconds: float) -> bool:
        """Wait for so long at the most until a change is delivered with care."""
        for _ in range(int(seconds / _LOOK) + 1):
            await asyncio.sleep(_LOOK)
            if any(x.deaths.noted is not None for x in self._world.checker.leases.values()):
                return True
        return False

    async def end(self) -> None:
        """Wait until each is put aside, or the range paused in which it is, and mend the
        observer.
        """
        world = self._world
        self._left = 0
        until = world.loop.time() + _LONGEST
        while left := self._at_large():
            if world.loop.time() > until:
                raise Violation(f"after {_LONGEST:.0f} s of calm changes {left} still kill")
            await asyncio.sleep(5)
            world.raise_violation()
            await world.start_again()
        self.numbers.clear()
        killed = [x for x in world.checker.leases.values() if KILLED in (x.paused or "")]
        if killed:
            await world.operators.resume(sorted(x.range_id for x in killed))

    def _at_large(self) -> set[int]:
        """Return those that some host may read: not what waits in a range that is paused, or
        goes on from one.
        """
        world = self._world
        read = [x.range for x in world.checker.leases.values() if not (x.paused or x.ended)]
        met = {y for x in read for y in world.source.between(x, 0, 1 << 62)}
        return (self.numbers & met) - world.checker.blame.aside
