"""Bounds each attempt.

An async call that takes too long is cancelled, and the attempt fails like any other. A
plain call cannot be cancelled: ``adapt`` waits until it has ended in its thread. If it
does so within a grace of some seconds, the attempt has failed, too. If not, it is left
behind and ``ObserverStuck`` says so: a thread is lost, and it is not known what it still does.

A cancellation from outside is passed on, and bounded as well: by what is left of the
limit, and then the grace. A second one gives up at once, as ``adapt`` promises.

Limits: the call runs in a task of its own; cancelling is all that is done to end it. An
async observer that blocks the event loop stops this clock, too. ``close`` is not bounded
here: the caller of close bounds that.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.observers.errors import ObserverStuck, ObserverTimedOut
from changefeed.observers.observer import CloseReason, Context, Observer
from changefeed.observers.unawaited import log_what_nobody_awaits

_LONGEST_GRACE = 5.0


class TimeLimitedObserver:
    """Gives each ``open`` and each ``process`` so many seconds.

    Raise ``ObserverTimedOut`` if the call was ended then, ``ObserverStuck`` if it could
    not be: the observer must then not be called any more.
    """

    def __init__(self, observer: Observer, seconds: float) -> None:
        self._observer = observer
        self._seconds = seconds
        self._grace = min(_LONGEST_GRACE, seconds)

    async def open(self, context: Context) -> None:
        await self._bounded(context, "open", self._observer.open(context))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await self._bounded(context, "process", self._observer.process(context, changes))

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._observer.close(context, reason)

    async def _bounded(
        self, context: Context, name: str, call: Coroutine[Any, Any, None]
    ) -> None:
        clock = asyncio.get_running_loop().time
        limit = clock() + self._seconds
        task = asyncio.create_task(call)
        try:
            await asyncio.wait({task}, timeout=self._seconds)
        except asyncio.CancelledError:
            await self._end(task, context, name, within=max(0.0, limit - clock()) + self._grace)
            log_what_nobody_awaits(task)
            raise
        if not task.done():
            await self._end(task, context, name, within=self._grace)
            if task.cancelled():
                raise ObserverTimedOut(name, self._seconds)
        task.result()

    async def _end(
        self, task: "asyncio.Task[None]", context: Context, name: str, *, within: float
    ) -> None:
        """Cancel the call and see it end; cancelled ourselves, leave it at once."""
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=within)
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(log_what_nobody_awaits)
        if not task.done():
            raise ObserverStuck(context.range.id, name, self._seconds + self._grace)
