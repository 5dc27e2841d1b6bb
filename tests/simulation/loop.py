"""An event loop of virtual time in which single hosts can be frozen and thawed.

Whatever runs in a host's context belongs to the host: its tasks, its timers, what they
are woken by. While it is frozen nothing of it runs, and afterwards everything does at
once, as in a process after SIGSTOP and SIGCONT. Tasks hash by the order of their making in
this loop, so that a seed replays the same way wherever it is lived through.

There are no sockets and no threads here, so a turn of the loop is nothing but its callbacks:
a simulation is as fast as these few lines are.
"""

import asyncio
import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any

from changefeed.testing.virtual_time import Deadlock

HOST: ContextVar[str | None] = ContextVar("HOST", default=None)
"""The process that the running code belongs to; ``None`` is the world around."""


class CountedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, coroutine: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(coroutine, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Event(asyncio.TimerHandle):
    """What is to run, now or at its time: a handle with nothing for debugging in it."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., Any], args: Any, context: Context
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True


class FreezingLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._soon = deque[_Event]()
        self._timers: list[tuple[float, int, _Event]] = []
        self._numbers = count()  # of timers: those of one moment fire in order
        self._frozen: set[str] = set()
        self._late: dict[str, list[_Event]] = defaultdict(list)
        tasks = count()
        self.set_task_factory(
            lambda loop, coroutine, **kwargs: CountedTask(
                next(tasks), coroutine, loop=loop, **kwargs
            )
        )

    def freeze(self, host: str) -> None:
        """Let nothing of ``host`` run until it is thawed; for ever, if it was killed."""
        self._frozen.add(host)

    def is_frozen(self, host: str) -> bool:
        return host in self._frozen

    def thaw(self, host: str) -> None:
        self._frozen.discard(host)
        self._soon.extend(self._late.pop(host, ()))

    def thaw_all(self) -> None:
        """Let everything run again, the killed too: so that it can be ended."""
        self._frozen.clear()
        for host in [*self._late]:
            self.thaw(host)

    # what asyncio asks of a loop

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        assert executor is None, "there are no threads here"
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        event = _Event(self._now, callback, args, _own(context))
        self._queue_for(event).append(event)
        return event

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # there is one thread

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        event = _Event(when, callback, args, _own(context))
        heapq.heappush(self._timers, (when, next(self._numbers), event))
        return event

    def _run_once(self) -> None:
        """Run what is ready, which may make more ready for the next turn."""
        soon = self._soon
        if not soon:
            self._skip_to_the_next_timer()
        self._fire_timers()
        for _ in range(len(soon)):
            event = soon.popleft()
            if not event._cancelled:
                self._run(event)

    def _run(self, event: _Event) -> None:
        try:
            event._context.run(event._callback, *event._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as handles do it
            self.call_exception_handler({"message": f"{event._callback}", "exception": error})

    def _skip_to_the_next_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("all tasks are waiting and no timer is set")
        self._now = max(self._now, timers[0][0])

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            event = heapq.heappop(timers)[2]
            if not event._cancelled:
                self._queue_for(event).append(event)

    def _queue_for(self, event: _Event) -> "deque[_Event] | list[_Event]":
        """Return where an event belongs: what a frozen host was to run comes late."""
        if not self._frozen:
            return self._soon
        host = event._context.get(HOST)
        return self._late[host] if host in self._frozen else self._soon


def _own(context: Context | None) -> Context:
    return copy_context() if context is None else context
