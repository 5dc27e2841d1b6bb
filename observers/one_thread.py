"""One thread that makes one call after the other, for code that may block.

A thread cannot be interrupted: a call that is cancelled goes on until the function has
ended, and raises ``CancelledError`` only then. To cancel it a second time is to give it up:
it is then left to itself, and does not hold up the end of the process.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from changefeed.observers.error_text import describe, log_late_error


class OneThread(concurrent.futures.Executor):
    """One thread that makes one call after the other; see ``run``.

    Not a ``ThreadPoolExecutor``: Python joins those at exit, and one handler that hangs
    would keep the process alive for ever. Still an executor: the loop is asked to run a call,
    so that a loop with a clock of its own knows of it.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in the thread; see the module on what cancellation does."""
        call = _Call(partial(copy_context().run, function, *arguments))
        ended = asyncio.get_running_loop().run_in_executor(self, call)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            await _outlast(ended, call)
            raise
        return ended.result()

    def submit(
        self, fn: Callable[..., Any], /, *_: object, **__: object
    ) -> concurrent.futures.Future[Any]:
        assert isinstance(fn, _Call), "calls come from run"
        self._calls.put(fn)
        return fn.ended

    def stop(self) -> None:
        """Let the thread end once its calls have."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # an idle thread holds no changes


async def _outlast(ended: asyncio.Future[Any], call: "_Call") -> None:
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        call.ended.cancel()  # given up: what has not begun will not begin
        ended.cancel()  # what has begun may end when this loop is closed
        call.ended.add_done_callback(log_late_error)
        raise
    ended.exception()  # else asyncio logs it as well
    log_late_error(call.ended)


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self.ended: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._function = function

    def __call__(self) -> None:
        if not self.ended.set_running_or_notify_cancel():
            return
        try:
            self.ended.set_result(self._function())
        except (
            StopIteration,  # no future can carry it: its awaiter would wait for ever
            asyncio.CancelledError,  # this call was not cancelled: only the user's own futures
            concurrent.futures.CancelledError,
        ) as error:
            failure = RuntimeError(f"the observer raised {describe(error)}")
            failure.__cause__ = error
            self.ended.set_exception(failure)
        except BaseException as error:  # noqa: BLE001 - the border of the thread
            self.ended.set_exception(error)
