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
from dataclasses import dataclass
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
        self._late: dict[str, list[_Late]] = defaultdict(list)
        super().__init__()
        self.set_task_factory(
            lambda loop, coroutine, **kwargs: CountedTask(coroutine, loop=loop, **kwargs)
        )

    def freeze(self, host: str) -> None:
        """Let nothing of ``host`` run until it is thawed; for ever, if it was killed."""
        self._frozen.add(host)

    def thaw(self, host: str) -> None:
        self._frozen.discard(host)
        for late in self._late.pop(host, ()):
            super().call_soon(late.run, context=late.context)

    def thaw_all(self) -> None:
        """Let everything run again, the killed too: so that it can be ended."""
        self._frozen.clear()
        for host in [*self._late]:
            self.thaw(host)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        host = self._frozen_host(context)
        if host is None:
            return super().call_soon(callback, *args, context=context)
        late = _Late(asyncio.Handle(callback, args, self, context), callback, args, context)
        self._late[host].append(late)
        return late.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        def fire() -> None:
            host = self._frozen_host(context)
            if host is None:
                callback(*args)
            else:
                self._late[host].append(_Late(handle, callback, args, context))

        handle = super().call_at(when, fire, context=context)
        return handle

    def _frozen_host(self, context: Context | None) -> str | None:
        """Return the host that a callback belongs to, if that is frozen."""
        if not self._frozen:
            return None
        host = HOST.get() if context is None else context.get(HOST)
        return host if host in self._frozen else None


@dataclass(slots=True)
class _Late:
    """What a frozen host was to run. It can still be cancelled, by its handle."""

    handle: asyncio.Handle
    callback: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context | None

    def run(self) -> None:
        if not self.handle.cancelled():
            self.callback(*self.args)
