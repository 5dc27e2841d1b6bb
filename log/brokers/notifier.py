"""Waking all who wait for something to change: they look again, and wait on if it is not so."""

import asyncio


class Notifier:
    """``notify`` wakes all tasks that are in ``wait`` then; it is not kept for later ones.

    Look first, then wait, with no ``await`` in between: so no change is missed.
    """

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, until: float | None = None) -> bool:
        """Wait for the next one, or until a time of the loop; return whether it came."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        waiting = self._next
        assert not waiting.done(), "a notification that has come is nobody's next"
        try:
            async with asyncio.timeout_at(until):
                await asyncio.shield(waiting)
        except TimeoutError:
            return False
        return True
