"""A broker's process: it can be killed, frozen, cut off, and asked over the network."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.run_core import leave, open_core
from changefeed.runtime.errors import NameTaken
from tests.simulation.loop import HOST
from tests.simulation.probes import BrokerProbe as Probe

from .store import Link

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")


class Unreachable(Exception):
    """No answer came: whether the call did something is not known."""


class BrokerProcess:
    """``id`` is new for each start; ``state`` is what the world has done to it."""

    def __init__(self, world: "World", name: str, number: int) -> None:
        self.name = name
        self.id = f"{name}#{number}"
        self.core: BrokerCore | None = None
        self.alive = True
        self.cut = False
        self.leaving = False
        self._world = world
        self._rate = world.random.choice([1.0, 1.0, 0.9, 1.1])
        self._context = contextvars.copy_context()
        self._context.run(HOST.set, self.id)
        self._over = False
        self.task = world.loop.create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        while not self._over:
            try:
                await self._run_core()
            except* NameTaken:
                self._world.probes.hit(Probe.NAME_TAKEN)
                self._world.tell(f"{self.id} finds its name taken")
                self._over = True
            except* self._world.passing:
                self._world.probes.hit(Probe.COULD_NOT_START)
                self._world.tell(f"{self.id} could not start")
            self.core = None
            if not self._over:
                await asyncio.sleep(1)
        self.alive = False

    async def _run_core(self) -> None:
        world = self._world
        async with open_core(
            Link(world.objects, world.weather, world.random, lambda: self.cut, world.probes),
            self.name,
            address=self.id,
            settings=world.settings,
            ping=world.pings(self.name),
            clock=self._clock,
            wall_us=world.wall_us,
        ) as core:
            self.core = core
            while not self._over:
                await asyncio.sleep(0.5)
                if self.leaving:
                    await self._leave(core)

    def _clock(self) -> float:
        """Return a clock that is a little slow or fast, and began at no time in particular."""
        return 1_000.0 * self._rate + self._rate * self._world.loop.time()

    async def _leave(self, core: BrokerCore) -> None:
        with contextlib.suppress(*self._world.passing):
            await leave(core)
            self._world.tell(f"{self.id} has left")
            self._world.left(self)
            self._over = True

    async def ask(self, call: Callable[[BrokerCore], Awaitable[T]], patience: float) -> T:
        """Call the broker as over a network; raise ``Unreachable`` where no answer comes."""
        core = self.core
        if core is None or not self.alive:
            await asyncio.sleep(0.05)
            raise Unreachable(self.id)
        random = self._world.random
        await asyncio.sleep(random.uniform(0.0005, 0.01))
        task: asyncio.Task[T] = self._world.loop.create_task(
            _awaited(call, core), context=self._context
        )
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            task.add_done_callback(_seen)
            raise Unreachable(f"{self.id} is silent")
        if task.cancelled() or random.random() < self._world.lost_answers:
            _seen(task)
            raise Unreachable(f"the answer of {self.id} was lost")
        return task.result()

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more; what it has asked of the store may happen."""
        if self.core is not None:
            status, hit = self.core.status(), self._world.probes.hit
            hit(Probe.MASTER_KILLED, where=status.master)
            hit(Probe.KILLED_WITH_RECORDS, where=status.buffered > 0)
        self.alive = False
        self._over = True
        self._world.loop.freeze(self.id)

    async def bury(self) -> None:
        """At the end of the world, after it was thawed."""
        self._over = True
        self.task.cancel()
        await asyncio.wait([self.task])


async def _awaited(call: Callable[[BrokerCore], Awaitable[T]], core: BrokerCore) -> T:
    return await call(core)


def _seen(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()
