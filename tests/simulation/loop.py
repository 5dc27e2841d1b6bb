"""An event loop of virtual time in which single hosts can be frozen and thawed.

Whatever runs in a host's context belongs to the host: its tasks, its timers, what they
are woken by. While it is frozen nothing of it runs, and afterwards everything does at
once, as in a process after SIGSTOP and SIGCONT. Tasks hash by the order of their making,
so that a seed replays the same way in another process.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextvars import Context, ContextVar
from itertools import count
from typing import Any

from tests.support.virtual_time import VirtualTimeLoop

HOST: ContextVar[str | None] = ContextVar("HOST", default=None)
"""The process that the running code belongs to; ``None`` is the world around."""


class CountedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _count = count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._count)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class FreezingLoop(VirtualTimeLoop):
    def __init__(self) -> None:
        self._frozen: set[str] = set()
        self._late: dict[str, list[tuple[Callable[..., Any], tuple[Any, ...], Context | None]]]
        self._late = defaultdict(list)
        super().__init__()
        self.set_task_factory(
            lambda loop, coroutine, **kwargs: CountedTask(coroutine, loop=loop, **kwargs)
        )

    def freeze(self, host: str) -> None:
        self._frozen.add(host)

    def thaw(self, host: str) -> None:
        self._frozen.discard(host)
        for callback, args, context in self._late.pop(host, ()):
            self.call_soon(callback, *args, context=context)

    def bury(self, host: str) -> None:
        """Let nothing of ``host`` run any more, ever: it was killed."""
        self._frozen.add(host)

    def thaw_all(self) -> None:
        """Let everything run again, the killed too: so that it can be ended."""
        self._frozen.clear()
        for host in [*self._late]:
            self.thaw(host)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle | None:
        if self._frozen and self._is_frozen(callback, args, context):
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._fire, callback, args, context, context=context)

    def _fire(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        if not (self._frozen and self._is_frozen(callback, args, context)):
            callback(*args)

    def _is_frozen(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> bool:
        host = HOST.get() if context is None else context.get(HOST)
        if host not in self._frozen:
            return False
        self._late[host].append((callback, args, context))
        return True
