"""Several calls at the same time, none of which goes on when one has failed: all, or a few.

What ``asyncio.gather`` leaves running then is bounded by no timeout, and what it holds, a
lock or a connection, is missing to the next that asks. A ``TaskGroup`` leaves nothing running;
but up to Python 3.12 a failure in it leaves a request to cancel in the task around it, which
``keep_cancellation`` cannot tell from one of the caller's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload

from changefeed.runtime.calls import keep_cancellation

First = TypeVar("First")
Second = TypeVar("Second")
Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Coroutine[Any, Any, Result]


@overload
async def gather_or_cancel(
    first: Call[First], second: Call[Second], /
) -> tuple[First, Second]: ...


@overload
async def gather_or_cancel(*calls: Call[Result]) -> tuple[Result, ...]: ...


async def gather_or_cancel(*calls: Call[Any]) -> tuple[Any, ...]:
    """Await all calls; return what they return, in their order.

    The first that fails ends the others, and its error is raised when all have ended.
    """
    tasks = [asyncio.create_task(x) for x in calls]
    try:
        return tuple(await keep_cancellation(asyncio.gather(*tasks)))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def for_each(
    items: Iterable[Item], call: Callable[[Item], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Await ``call(item)`` for all items, ``at_once`` at the same time; results in their order.

    The first call that fails ends the others, and its error is raised when all have ended.
    """
    assert at_once > 0, "nothing would ever be called"
    wanted = list(items)
    waiting = iter(enumerate(wanted))
    found: dict[int, Result] = {}

    async def some() -> None:
        for n, item in waiting:
            found[n] = await call(item)

    await gather_or_cancel(*(some() for _ in wanted[:at_once]))
    return [found[n] for n in range(len(wanted))]
