"""An event loop for tests: it never waits, it moves its clock instead.

A test of an hour takes milliseconds, and the same calls come in the same order each time.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MAX_CALL = 10.0
_MAX_TIME = 2.0**24
"""Seconds, 194 days. Beyond, a float cannot say asyncio's tick of a nanosecond, and no timer
would run when it is due.
"""


class Deadlock(AssertionError):
    """Every task waits, and no timer is set, or timers alone for half a year: a real program
    would hang here.
    """


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """``loop.time()`` starts at zero and jumps to the next timer when nothing is ready.

    For code that waits by ``asyncio.sleep`` and timeouts. A call in another thread takes no
    virtual time: the loop stands still until it has ended, for ten real seconds at most.
    Sockets do not wait for its clock: what depends on them belongs on an ordinary loop.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._threads = ThreadPoolExecutor()
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        call = (executor or self._threads).submit(func, *args)
        wait([call], timeout=_MAX_CALL)
        return asyncio.wrap_future(call, loop=self)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        super().close()

    def skip(self, seconds: float) -> None:
        """Let time pass, as a process that is paused would see it pass."""
        self._now += seconds


class _Skipping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:  # something is ready to run, so no socket need be asked
            return []
        ready = super().select(0)
        if not ready and timeout is None:
            raise Deadlock("all tasks are waiting and no timer is set")
        if not ready and timeout is not None:
            self._loop.skip(timeout)
            if self._loop.time() >= _MAX_TIME:
                raise Deadlock(
                    "tasks have waited for 194 days: what do they try again and again?"
                )
        return ready


def run_in_virtual_time(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as ``asyncio.run`` does, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)
