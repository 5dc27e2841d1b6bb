"""What users' code raises goes no further than here: outside it is an ``ObserverRaised``.

Everything but a cancellation of ours is a failure of the observer, to be tried again,
isolated and put aside like any other: ``SystemExit`` of a library that calls ``sys.exit``,
``KeyboardInterrupt``, ``GeneratorExit``, the panics of extensions in Rust, and a
``CancelledError`` that comes from the user's own tasks. So are our own errors, which mean
something else where we raise them: an observer may call our clients, and raise what it likes.
No other layer has to look at an object of the user's, which may not even let itself be printed.

Each call is made in a task of its own. A cancellation from outside that task is ours; if it
ends cancelled without one, that is the observer's doing: ``asyncio.current_task().cancel()``,
a library that cancels to end a wait, what a ``TaskGroup`` leaves behind. Ours are passed on,
each of them, and the call is waited for until it has ended. What it makes of them is no
success: it may have swallowed one with its work half done. But a call that had returned when
we were cancelled, as after the process was stopped for a while, has done its work.

Limits: what is bound to a task does not last from one call to the next, as a cancel scope of
anyio or a context variable. A task that the user's code starts by itself is not called from
here. If that raises ``SystemExit`` or ``KeyboardInterrupt``, asyncio ends the event loop with
it; processes of ours run theirs on (``runtime/main_task.py``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from changefeed.feeds.feed import Change
from changefeed.observers.error_text import kind_of, text_of
from changefeed.observers.errors import ObserverRaised
from changefeed.observers.observer import CloseReason, Context, Observer
from changefeed.observers.unawaited import log_what_nobody_awaits


class ErrorBoundary:
    """Raises ``ObserverRaised``, and nothing else but our own cancellations."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def open(self, context: Context) -> None:
        await _contained(partial(self._observer.open, context))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await _contained(partial(self._observer.process, context, changes))

    async def close(self, context: Context, reason: CloseReason) -> None:
        await _contained(partial(self._observer.close, context, reason))


async def _contained(call: Callable[[], Awaitable[None]]) -> None:
    cancel_later = _cancellation_kept()
    task = asyncio.create_task(_raising(call))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancelled is None and _has_returned(task):
                cancel_later()
                return
            cancelled = error
            task.cancel()
    if cancelled is not None:
        log_what_nobody_awaits(task)
        raise cancelled
    try:
        task.result()
    except asyncio.CancelledError as error:
        raise _raised(error) from error


def _has_returned(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _cancellation_kept() -> Callable[[], object]:
    """Return what cancels this task again once it goes on, if it still is to be cancelled by
    then: a timeout that is left meanwhile takes its request back.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine is awaited in a task"
    before = task.cancelling()

    def cancel_again() -> None:
        if task.cancelling() > before:
            task.cancel()
            task.uncancel()  # it is the same request, which a timeout counts once

    return partial(loop.call_soon, cancel_again)


async def _raising(call: Callable[[], Awaitable[None]]) -> None:
    """Make the call. No task may end with what ends an event loop, such as ``SystemExit``."""
    task = asyncio.current_task()
    try:
        await call()
    except asyncio.CancelledError:
        raise
    except GeneratorExit as error:
        if not _is_running(task):  # the coroutine is being thrown away
            raise
        raise _raised(error) from error
    except BaseException as error:
        raise _raised(error) from error


def _raised(error: BaseException) -> ObserverRaised:
    return ObserverRaised(kind_of(error), text_of(error))


def _is_running(task: "asyncio.Task[None] | None") -> bool:
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False
