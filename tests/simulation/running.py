"""One seed, from a fresh event loop to its end."""

import asyncio
import gc
import random as global_random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from .loop import FreezingLoop
from .outcome import Outcome
from .sources import FeedKind
from .stores import StoreKind
from .world import World


def simulate(
    seed: int,
    feed: FeedKind = "memory",
    leases: StoreKind = "memory",
    *,
    wild: bool = False,
    mixed: bool = False,
    splits: bool = False,
    troubled: bool = False,
    aimed: bool = False,
) -> Outcome:
    """Live through one seed, from a fresh loop to its end."""
    global_random.seed(seed)  # libraries draw from it
    loop = FreezingLoop()
    with _without_garbage_collection(), ExitStack() as after:
        try:
            world = partial(
                World,
                seed,
                feed,
                leases,
                wild=wild,
                mixed=mixed,
                splits=splits,
                troubled=troubled,
                aimed=aimed,
            )
            return loop.run_until_complete(_bounded(world, after))
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


async def _bounded(make_world: Callable[[], World], after: ExitStack) -> Outcome:
    world = make_world()
    after.callback(world.stores.close)
    async with asyncio.timeout(48 * 3600):
        return await world.live()


async def _end_all() -> None:
    """Cancel what the story has left behind, the killed and the frozen too."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1.0)
