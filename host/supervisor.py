"""Several host processes on one machine, under one supervisor.

A child that ends of itself is started again, after a delay that grows as long as it keeps
dying young. A child that ends with 2 has met a mistake that only a person can mend: then
all are stopped. A signal is passed on to every child; a second one kills them, and so does
the end of the time they have.

A child that is started again is given the incarnations of those before it: their processes
have ended, so it need not watch whether they live, and has its leases at once.

Each child reads the end of its standard input as a signal to stop, and the supervisor
holds the other end. So if the supervisor itself is killed, the children stop in an
orderly way. They are in process groups of their own: Ctrl-C reaches them once, through us.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from changefeed.runtime.logs import get_logger
from changefeed.runtime.stop import Stop

USER_ERROR = 2
_VARIABLE = "CHANGEFEED_INCARNATIONS"
"""The one of a process that a supervisor has started, and those before it, which ended."""
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_LONG_ENOUGH = 60.0
_REMEMBERED = 10  # starts that may have died before they could write their record

_log = get_logger()


class Child(Protocol):
    """A running process: what ``asyncio.create_subprocess_exec`` returns."""

    @property
    def pid(self) -> int: ...

    def send_signal(self, number: int) -> None: ...

    async def wait(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """One start of the host of a name; ``dead`` are earlier ones, whose processes ended."""

    name: str
    incarnation: str
    dead: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the process of it."""
        return {_VARIABLE: " ".join([self.incarnation, *self.dead])}

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str]) -> "ChildStart":
        """Return what a supervisor has told the process of this host, or a start of its own."""
        incarnation, *dead = environ.get(_VARIABLE, "").split() or [uuid4().hex]
        return cls(name=name, incarnation=incarnation, dead=tuple(dead))


Start = Callable[[ChildStart], Awaitable[Child]]
"""Starts a host."""


def child_names(base: str, count: int) -> list[str]:
    return [f"{base}-{n}" for n in range(1, count + 1)]


def next_delay(previous: float, lived: float) -> float:
    """Return how long to wait with a restart: doubled, unless the child lived for long."""
    if not previous or lived >= _LONG_ENOUGH:
        return _FIRST_DELAY
    return min(2 * previous, _LONGEST_DELAY)


def exit_code(codes: Iterable[int]) -> int:
    """Return the worst of the children's codes; to have been killed counts as 1."""
    return max((1 if x < 0 else x for x in codes), default=0)


class Supervisor:
    """Keeps children running until ``stop``. ``budget`` is how long a stop may take."""

    def __init__(self, start: Start, *, budget: float) -> None:
        self._start = start
        self._budget = budget
        self._stop = Stop()
        self._children: dict[str, Child] = {}

    def stop(self) -> None:
        """Ask all children to stop; asked again, kill them. Returns immediately."""
        self._stop.request()

    async def run(self, names: Sequence[str]) -> int:
        """Run a child for each name until asked to stop; return the exit code."""
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(self._stop_them())
            keeping = [group.create_task(self._keep(name)) for name in names]
            codes = [await x for x in keeping]
            stopping.cancel()
        return exit_code(codes)

    async def _keep(self, name: str) -> int:
        """Start a child again and again; return the code it ended with at last."""
        clock = asyncio.get_running_loop().time
        delay = 0.0
        dead: tuple[str, ...] = ()
        while True:
            began = clock()
            start = ChildStart(name=name, incarnation=uuid4().hex, dead=dead)
            code = await self._run_once(start)
            dead = (*dead, start.incarnation)[-_REMEMBERED:]
            if self._stop.requested.is_set():
                return code
            if code == USER_ERROR:
                _log.error("process.ended", host=name, code=code, advice="see its message")
                self._stop.request()
                return code
            delay = next_delay(delay, clock() - began)
            _log.warning("process.ended", host=name, code=code, again_after=delay)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stop.requested.wait()
                return code

    async def _run_once(self, start: ChildStart) -> int:
        name = start.name
        child = await self._start(start)
        self._children[name] = child
        _log.info("process.started", host=name, pid=child.pid)
        try:
            if self._stop.requested.is_set():
                _send(child, signal.SIGTERM)
            code = await child.wait()
        finally:
            del self._children[name]
        # Stopped so early that it had not begun to listen: an orderly end all the same.
        early = code == -signal.SIGTERM and self._stop.requested.is_set()
        return 0 if early else code

    async def _stop_them(self) -> None:
        await self._stop.requested.wait()
        self._signal_all(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._budget):
                await self._stop.at_once.wait()
        _log.warning("process.killed", hosts=sorted(self._children))
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children.values():
            _send(child, number)


def _send(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        child.send_signal(number)
