"""What users' code raises goes no further than here: outside it is an ``ObserverRaised``.

Everything but a cancellation of ours is a failure of the observer, to be tried again,
isolated and put aside like any other: ``SystemExit`` of a library that calls ``sys.exit``,
``KeyboardInterrupt``, ``GeneratorExit``, the panics of extensions in Rust, and a
``CancelledError`` that comes from the user's own tasks. So are our own errors, which mean
something else where we raise them: an observer may call our clients, and raise what it likes.
Nobody outside has to look at an object of the user's, which may not even let itself be printed.

A cancellation is ours if somebody has asked the task that makes the call to end since it
began (``Task.cancelling``): a worker that stops, a time limit, the deadline of a handoff. What
was asked before does not count: up to Python 3.12 a ``TaskGroup`` of the user's own, in which
something fails, leaves such a request behind.

Limits: a task that the user's code starts by itself is not called from here. If that raises
``SystemExit`` or ``KeyboardInterrupt``, asyncio ends the event loop with it; processes of ours
run theirs on (``runtime/main_task.py``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from changefeed.feeds.feed import Change
from changefeed.observers.error_text import kind_of, text_of
from changefeed.observers.errors import ObserverRaised
from changefeed.observers.observer import CloseReason, Context, Observer


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
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        await call()
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise ObserverRaised(kind_of(error), text_of(error)) from error
    except GeneratorExit as error:
        if not _is_running(task):  # the coroutine is being thrown away
            raise
        raise ObserverRaised(kind_of(error), text_of(error)) from error
    except BaseException as error:
        raise ObserverRaised(kind_of(error), text_of(error)) from error


def _is_running(task: "asyncio.Task[None] | None") -> bool:
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False
