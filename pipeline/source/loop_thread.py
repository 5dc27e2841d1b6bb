"""An event loop in a thread of its own, for code that blocks.

What was asked for goes on while the caller does something else: a page comes in while the
one before is made into columns, or while Spark takes it.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines until ``close``. Make, call and close it in one thread, not in a loop."""

    def __init__(self) -> None:
        self._running = Event()
        # Ends with the process, should nobody close it.
        self._thread = Thread(target=self._run, name="changefeed-feed", daemon=True)
        self._thread.start()
        self._running.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin with a coroutine, and return what will have its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. If the caller is interrupted, so is the coroutine."""
        found = self.start(work)
        try:
            return found.result()
        finally:
            found.cancel()

    def close(self) -> None:
        """Cancel what still runs, and wait for its end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:  # which cancels what is left
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._running.set()
        await self._stop.wait()
