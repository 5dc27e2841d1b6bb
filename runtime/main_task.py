"""Runs the main task of a process to its end, whatever other tasks of the process raise.

A task that raises ``SystemExit`` or ``KeyboardInterrupt`` ends asyncio's event loop, beside
setting its own exception. A library that calls ``sys.exit`` in one of the tasks of an
observer's ``TaskGroup`` would so end a host, and then the next one on the same change. Here
the loop goes on: the ``TaskGroup`` raises what its task did, which is a failure of the
observer like any other. If no one awaits the task, it ends alone, and the log says so. Code
that cancels all tasks cancels what waits for the main task, too: that waits on.

Limits: a program that opens a host runs its own loop (``open_host``).
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from changefeed.runtime.logs import get_logger

T = TypeVar("T")

_log = get_logger()


def run_main_task(runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` as ``runner.run`` does; return what it returns, or raise what it raises."""
    task = runner.get_loop().create_task(main)
    while not task.done():
        try:
            runner.run(_joined(task))
        except asyncio.CancelledError:
            continue  # the main task was cancelled as well, and says what that means
        except (SystemExit, KeyboardInterrupt) as error:
            if _is_from_the_terminal(error):
                raise
            if not task.done():
                _log.error(
                    "process.warning",
                    what="an exit was ignored",
                    error=repr(error),
                    advice="a task that the observer started raised it, and has ended; the "
                    "process goes on: raise an Exception there",
                )
    return task.result()


async def _joined(task: "asyncio.Task[Any]") -> None:
    """Wait until the task is done; cancelled by Ctrl-C, cancel it."""
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        raise


def _is_from_the_terminal(error: BaseException) -> bool:
    """Whether Ctrl-C may have raised it, which no handler of ours takes for a stop."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return raises and isinstance(error, KeyboardInterrupt)
