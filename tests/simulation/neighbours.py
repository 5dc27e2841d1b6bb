"""The hosts of another kind in a world: they come and go, crash, freeze and are cut off."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from changefeed.feeds.feed import Change
from changefeed.leases.lease import HostName

from .clocks import right_time
from .dotnet_host import DotNetLikeHost, Surrounded
from .loop import HOST

if TYPE_CHECKING:
    from .cosmos_endpoint import CosmosStores
    from .world import World

_NAMES = ("n0", "n1", "n2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One start of one such host."""

    id: str
    host: DotNetLikeHost
    task: "asyncio.Task[None]"
    context: contextvars.Context


class Neighbours:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random
        self._starts = 0
        self._running: dict[str, Neighbour] = {}
        self._killed = set[str]()

    @property
    def names(self) -> set[HostName]:
        return {HostName(x) for x in self._running}

    @property
    def ids(self) -> set[str]:
        return {x.id for x in self._running.values()}

    @property
    def events(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.come_or_go,
            self.come_or_go,
            self.come_or_go,
            self.crash,
            self.crash,
            self.freeze,
            self.freeze,
            self.partition,
        ]

    def start(self, name: str) -> None:
        world = self._world
        self._starts += 1
        process_id = f"{name}/{self._starts}"
        world.checker.neighbours.add(process_id)
        context = contextvars.copy_context()
        context.run(HOST.set, process_id)
        host = context.run(self._make, name, process_id)
        task = world.loop.create_task(host.run(), context=context)
        self._running[name] = Neighbour(id=process_id, host=host, task=task, context=context)
        world.tell(f"start {process_id}, of another kind")

    def _make(self, name: str, process_id: str) -> DotNetLikeHost:
        world = self._world
        error = self._random.uniform(-2, 2)
        around = Surrounded(
            items=cast("CosmosStores", world.stores).items(process_id),
            feed=world.feed_of(process_id),
            prefix="simulated",
            now=lambda: right_time(world.loop.time()) + error,
            random=self._random,
            process=partial(self._process, process_id),
            at_the_end=world.checker.read_to_end,
        )
        return DotNetLikeHost(name, around)

    async def _process(self, process_id: str, changes: Sequence[Change]) -> None:
        world, moods = self._world, self._world.moods
        await asyncio.sleep(moods.pace * len(changes) * self._random.random() * 2)
        if self._random.random() < moods.raises:
            raise RuntimeError("the observer of a neighbour does not feel like it")
        world.check(lambda: world.checker.done_by_neighbour(process_id, changes))

    # what happens to them

    async def come_or_go(self) -> None:
        name = self._random.choice(_NAMES)
        neighbour = self._running.pop(name, None)
        if neighbour is None:
            self.start(name)
            return
        self._world.tell(f"stop {neighbour.id}")
        neighbour.context.run(neighbour.host.stop)
        await asyncio.wait([neighbour.task])

    async def crash(self) -> None:
        await asyncio.sleep(0)
        neighbour = self._somebody()
        if neighbour is None:
            return
        self._world.tell(f"kill {neighbour.id}")
        self._world.loop.freeze(neighbour.id)
        self._killed.add(neighbour.id)
        del self._running[neighbour.host.name]

    async def freeze(self) -> None:
        world, neighbour = self._world, self._somebody()
        if neighbour is None:
            return
        seconds = self._random.choice([3.0, 20.0, 45.0, 90.0])
        world.tell(f"freeze {neighbour.id} for {seconds:.0f} s")
        world.loop.freeze(neighbour.id)
        await asyncio.sleep(seconds)
        if neighbour.id not in self._killed:
            world.tell(f"thaw {neighbour.id}")
            world.loop.thaw(neighbour.id)

    async def partition(self) -> None:
        world, neighbour = self._world, self._somebody()
        if neighbour is None:
            return
        world.tell(f"cut off {neighbour.id}")
        world.down.add(neighbour.id)
        await asyncio.sleep(self._random.uniform(5, 80))
        world.down.discard(neighbour.id)
        world.tell(f"{neighbour.id} is connected again")

    def raise_failures(self) -> None:
        """Raise what ended one of them: nothing should."""
        for neighbour in self._running.values():
            if neighbour.task.done():
                neighbour.task.result()

    def _somebody(self) -> Neighbour | None:
        return self._random.choice([*self._running.values()]) if self._running else None
