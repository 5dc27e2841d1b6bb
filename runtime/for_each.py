"""The same call for many things, a few at a time."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from changefeed.runtime.gather import gather_or_cancel

Item = TypeVar("Item")
Result = TypeVar("Result")


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
