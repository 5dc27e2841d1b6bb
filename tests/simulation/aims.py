"""Events that are aimed at what seldom meets by chance: a death in a handoff, a lost claim.

They happen beside those of the story, in worlds that are ``aimed``, by draws of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

from changefeed.leases.lease import Lease

from .faults import LISTINGS

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_CLAIMS = frozenset({"acquire", "replace", "patch", "patch_whole", "write", "checkpoint"})
_CREATES = frozenset({"create"})
_FINDS_OUT = 20.0
"""Seconds in which a host finds out that its name is taken; later it may take it over."""


class Aims:
    def __init__(self, world: "World", *, aimed: bool) -> None:
        self.letters_fail = 0.0
        """How likely it is that dead letters do not take a change."""
        self._world = world
        self._aimed = aimed
        self._over = False
        self._begun = set[asyncio.Task[None]]()
        self._random = Random(f"aims {world.seed}")
        self._at_a_request: Callable[[Lease], None] | None = None

    async def run(self) -> None:
        """Let one happen after the other, for as long as the story goes on."""
        while self._aimed and not self._over:
            await asyncio.sleep(self._random.uniform(2, 15))
            await self._random.choice(self._events())()

    async def end(self, running: "asyncio.Task[None]") -> None:
        """Begin nothing more, and let what was begun come to its end."""
        self._over = True
        await running
        while self._begun:
            await asyncio.wait([*self._begun])

    def _events(self) -> list[Callable[[], Awaitable[None]]]:
        events: list[Callable[[], Awaitable[None]]] = [
            *[self.trouble_in_a_handoff] * 4,
            self.lost_answers,
            self.slow_writes,
            self.impostor,
            self.stop_in_a_hang,
        ]
        if self._world.wild:
            events += [self.late_creations] * 3
        if self._world.may_lose_checkpoints:
            events += [self._world.faults.lose_checkpoint]
        if self._world.moods.manual:
            events += [self.late_acknowledgements]
        if self._world.puts_aside:
            events += [self.poison]
        return events

    # a handoff

    async def trouble_in_a_handoff(self) -> None:
        """Let a host join, and do something to the first lease that it asks for."""
        world = self._world
        free = [x for x in ("h6", "h7") if x not in world.processes]
        if not free:
            await world.stop(world.processes["h6"])
            return
        self._at_a_request = self._random.choice(
            [
                *(self._kill_owner, self._kill_other, self._pause, self._freeze),
                *(self._end_range, self._end_range),
            ]
        )
        world.start(free[0])
        if self._random.random() < 0.4:
            await asyncio.sleep(self._random.uniform(0, 10))
            world.source.change_ranges(self._random, world.tell)
            world.source.change_ranges(self._random, world.tell)
        await asyncio.sleep(self._random.uniform(15, 40))
        self._at_a_request = None

    def asked(self, lease: Lease) -> None:
        """A host has asked for a lease."""
        act, self._at_a_request = self._at_a_request, None
        if act is not None:
            asyncio.get_running_loop().call_later(self._random.uniform(0, 0.5), act, lease)

    def _kill_owner(self, lease: Lease) -> None:
        self._kill(self._world.processes.get(str(lease.owner)))

    def _kill_other(self, lease: Lease) -> None:
        self._kill(self._world.processes.get(str(lease.next_owner)))

    def _pause(self, lease: Lease) -> None:
        self._begin(self._world.operators.pause_for_a_while(lease.range_id))

    def _end_range(self, lease: Lease) -> None:
        """End it, and let its owner not see for a while that it is asked for."""
        self._world.source.end(lease.range_id, self._world.tell)
        self._begin(self._no_listings(8.0))

    async def _no_listings(self, seconds: float) -> None:
        weather = self._world.weather
        weather.calls, weather.fail_before = LISTINGS, 1.0
        await asyncio.sleep(seconds)
        weather.clear()

    def _freeze(self, lease: Lease) -> None:
        process = self._world.processes.get(str(lease.owner))
        if process is not None:
            self._begin(self._world.faults.freeze_one(process))

    def _begin(self, event: Coroutine[Any, Any, None]) -> None:
        """Let something happen by itself, in nobody's context."""
        task = self._world.loop.create_task(event, context=Context())
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def _kill(self, process: "Process | None") -> None:
        if process is not None:
            self._world.kill(process)
            if not self._world.processes:
                self._world.start(process.name)

    # answers and writes

    async def lost_answers(self) -> None:
        """Kill a host, and lose answers to those that go for its leases."""
        random, weather = self._random, self._world.weather
        weather.calls, weather.fail_after = _CLAIMS, random.choice([0.2, 0.4])
        weather.stale = random.choice([0.0, 0.5])
        await self._in_this_weather(kill_after=0.0, seconds=random.uniform(30, 50))

    async def slow_writes(self) -> None:
        """Kill a host whose writes are still on their way."""
        weather = self._world.weather
        weather.calls, weather.slow = _CLAIMS, 0.8
        await self._in_this_weather(kill_after=self._random.uniform(1, 6), seconds=20)

    async def late_creations(self) -> None:
        """Have leases created long after that was given up, and after ownership was lost."""
        world, random = self._world, self._random
        world.troubles.creates_late = True
        world.weather.calls, world.weather.stall = _CREATES, random.choice([0.7, 1.0])
        for _ in range(2):
            world.source.change_ranges(random, world.tell)
        await self._in_this_weather(kill_after=10, seconds=20)
        if world.may_forget_ownership:
            await world.faults.lose_all(random)

    async def _in_this_weather(self, *, kill_after: float, seconds: float) -> None:
        world = self._world
        world.tell(f"aimed: {world.weather}")
        await asyncio.sleep(kill_after)
        process = world.somebody_of(self._random)
        if process is not None:
            world.kill(process)
        if len(world.processes) < 2:
            world.start("h7")
        await asyncio.sleep(seconds)
        world.weather.clear()

    # observers, a name, and letters

    async def stop_in_a_hang(self) -> None:
        """Stop a host whose observers may hang."""
        await self._restart_while(hangs=0.5)

    async def late_acknowledgements(self) -> None:
        """Stop a host while acknowledgements are still to come."""
        await self._restart_while(late=10.0)

    async def _restart_while(self, *, hangs: float = 0.0, late: float = 0.0) -> None:
        world = self._world
        world.moods.hangs, world.moods.late = hangs, late
        await asyncio.sleep(self._random.uniform(3, 8))
        process = world.somebody_of(self._random)
        if process is not None:
            await world.stop(process)
            world.start(process.name)
        world.moods.hangs = world.moods.late = 0.0

    async def impostor(self) -> None:
        """Start another host under the name of one that lives."""
        process = self._world.somebody_of(self._random)
        if process is not None:
            await self._world.start_beside(process, _FINDS_OUT)

    async def poison(self) -> None:
        """Have changes that are put aside, and dead letters that do not take them at first."""
        moods = self._world.moods
        moods.poison = True
        self.letters_fail = 0.5
        await asyncio.sleep(self._random.uniform(10, 30))
        moods.poison = False
        self.letters_fail = 0.0
