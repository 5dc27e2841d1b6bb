"""A host is killed: how long until another delivers its changes, ours and Java's, in turns.

Two hosts of one kind share a container of two ranges in an emulator, which is written to all
the time. One is killed with SIGKILL; the time runs from there to the first change that the
other delivers of a key that was the dead one's. Both kinds have the same settings: leases
expire after 5 s, are renewed every second, and looked at twice a second. Beside ours stands
Azure's change feed processor for Java (``handleChanges``). It needs Java and Maven.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from emulator.tests.clients.programs import java
from tests.strangers.processors import World, a_world

from .result import Result

_ROUNDS: Final = 5
_PATIENCE: Final = 60.0
_LOOK: Final = 0.02
_fresh = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Killable:
    """A host that runs: what it has delivered, in order, and how to kill it."""

    ids: Callable[[], list[str]]
    kill: Callable[[], object]

    def keys(self, since: int) -> set[str]:
        return {x.partition("-")[0] for x in self.ids()[since:]}


def measure() -> Sequence[Result]:
    java("Processor")  # built before any clock runs
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    with TemporaryDirectory(prefix="bench-") as directory:
        async with a_world(Path(directory)) as world:
            writing = asyncio.create_task(_write(world))
            try:
                rounds = [
                    (await _round(world, _ours), await _round(world, _theirs))
                    for _ in range(_ROUNDS)
                ]
            finally:
                writing.cancel()
                await asyncio.wait({writing})
    name = "failover-beside-java"
    results = []
    for i, kind in enumerate(("host", "java")):
        times = [x[i] for x in rounds]
        results += [
            Result(name=f"{name}.{kind}.median", value=median(times), unit="s"),
            Result(name=f"{name}.{kind}.worst", value=max(times), unit="s"),
        ]
    return results


async def _write(world: World) -> None:
    while True:
        await world.write(1)
        await asyncio.sleep(_LOOK)


async def _round(
    world: World, host: Callable[[World, str], AbstractAsyncContextManager[_Killable]]
) -> float:
    """Kill one of two hosts; return the seconds until the other delivers its keys."""
    number = next(_fresh)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(host(world, f"a{number}"))
        second = await stack.enter_async_context(host(world, f"b{number}"))
        lost = await _shared(first, second)
        before = len(second.ids())
        first.kill()
        killed = perf_counter()
        await _until(lambda: bool(second.keys(before) & lost))
        return perf_counter() - killed


async def _shared(first: _Killable, second: _Killable) -> set[str]:
    """Wait until each delivers keys that the other does not; return those of the first."""
    while True:
        marks = len(first.ids()), len(second.ids())
        await asyncio.sleep(1.5)
        mine, others = first.keys(marks[0]), second.keys(marks[1])
        if mine and others and not mine & others:
            return mine


@asynccontextmanager
async def _ours(world: World, name: str) -> AsyncIterator[_Killable]:
    async with world.python(name, prefix="ours") as running:
        await running.says("host.started")
        pid = running.process.pid
        yield _Killable(ids=lambda: world.by_process(pid), kill=running.process.kill)


@asynccontextmanager
async def _theirs(world: World, name: str) -> AsyncIterator[_Killable]:
    async with world.java("changes", name) as host:
        yield _Killable(ids=lambda: host.ids, kill=host.running.process.kill)


async def _until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not state():  # noqa: ASYNC110 - other processes do not set events
            await asyncio.sleep(_LOOK)
