"""One seed, from a fresh event loop to its end."""

import asyncio
import gc
import random as global_random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .loop import FreezingLoop
from .outcome import Outcome
from .world import World, WorldKind

_PLAIN = WorldKind()


def simulate(seed: int, kind: WorldKind = _PLAIN) -> Outcome:
    """Live through one seed, from a fresh loop to its end."""
    global_random.seed(seed)  # libraries draw from it
    loop = FreezingLoop()
    with _without_garbage_collection(), ExitStack() as after:
        try:
            return loop.run_until_complete(_bounded(seed, kind, after))
        finally:
            loop.thaw_all()
            loop.run_until_complete(_end_all())
            loop.close()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """What is forgotten while it waits, with a lock in its hands, is there to the end of every
    replay. The collector would end it at a moment that depends on the seeds before.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _bounded(seed: int, kind: WorldKind, after: ExitStack) -> Outcome:
    world = World(seed, kind)
    after.callback(world.stores.close)
    async with asyncio.timeout(48 * 3600):
        return await world.live()


async def _end_all() -> None:
    """Cancel what the story has left behind, the killed and the frozen too."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1.0)
