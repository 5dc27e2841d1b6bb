"""An event for things of which a process has tens of thousands.

As ``asyncio.Event``, but small: that one keeps an empty deque, which is 760 bytes, and a worker
has ten of them.
"""

import asyncio


class LightEvent:
    """Set and cleared on the event loop; any number of tasks may wait."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self, *_: object) -> None:
        """Wake every task that waits by now, also if it is cleared before they run. It may be
        the callback of a task.
        """
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if self._is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
