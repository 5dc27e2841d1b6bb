"""Where what takes long is done: compressing, and what comes of that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Calls a function, and waits for it without keeping the loop from others."""

    def __call__(self, act: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


async def in_thread(act: Callable[[], T]) -> T:
    return await asyncio.to_thread(act)


async def in_place(act: Callable[[], T]) -> T:
    """Do it here: for simulations, which have no threads."""
    return act()
