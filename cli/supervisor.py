"""Several processes of one command on one machine, under one supervisor.

A child that ends of itself is started again at once, and later and later as long as it keeps
dying young. A child that ends with 2 has met a mistake that only a person can mend, and one
that ends with 141 writes to a closed pipe: then all are stopped. A signal is passed on to
every child; a second one kills them, and so does the end of the time they have.

A child that is started again is given the incarnations of those before it: their processes
have ended, so it need not watch whether they live, and has its leases at once.

Each child reads the end of its standard input as a signal to stop, and the supervisor
holds the other end. So if the supervisor itself is killed, the children stop in an
orderly way. They are in process groups of their own: Ctrl-C reaches them once, through us.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import uuid4

from changefeed.host.child_start import ChildStart
from changefeed.runtime.exit_codes import CLOSED_PIPE, FAILED, STOOD_STILL, USER_ERROR
from changefeed.runtime.logs import get_logger
from changefeed.runtime.stop import Stop

_FIRST_DELAY, _MAX_DELAY = 0.5, 30.0
_LONG_ENOUGH = 60.0
_FOR_GOOD = (USER_ERROR, CLOSED_PIPE)
"""To start a process again would end no better."""
_REMEMBERED = 10  # starts that may have died before they could write their record

_log = get_logger()


class Child(Protocol):
    """A running process: what ``asyncio.create_subprocess_exec`` returns."""

    @property
    def pid(self) -> int: ...

    def send_signal(self, number: int) -> None: ...

    async def wait(self) -> int: ...


Start = Callable[[ChildStart], Awaitable[Child]]
"""Starts a process."""


def next_delay(previous: float | None, lived: float) -> float:
    """Return how long to wait with a restart: doubled, unless the child lived for long.

    ``previous`` is how long the last restart has waited, ``None`` if there was none.
    """
    if previous is None or lived >= _LONG_ENOUGH:
        return 0.0
    return min(max(2 * previous, _FIRST_DELAY), _MAX_DELAY)


def how_it_ended(code: int) -> dict[str, str | int]:
    """Return the signal that ended a process, by its name, or else its exit code."""
    if code >= 0:
        return {"code": code}
    known = {x.value: x.name for x in signal.Signals}
    return {"signal": known.get(-code, f"signal {-code}")}


def in_words(code: int) -> str:
    """Return the same for a sentence."""
    ended = how_it_ended(code)
    known = {STOOD_STILL: ": its event loop stood still"}
    return str(ended.get("signal") or f"exit code {code}{known.get(code, '')}")


def exit_code(codes: Iterable[int]) -> int:
    """Return the worst of the children's codes; to have been killed, or stuck, counts as 1."""
    return max((x if x in (0, *_FOR_GOOD) else FAILED for x in codes), default=0)


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
        delay: float | None = None
        dead: dict[str, str] = {}
        while True:
            began = clock()
            start = ChildStart(name=name, incarnation=uuid4().hex, dead=dead)
            code = await self._run_once(start)
            dead[start.incarnation] = in_words(code)
            dead = dict([*dead.items()][-_REMEMBERED:])
            ended = how_it_ended(code)
            if self._stop.requested.is_set():
                log = _log.warning if code == -signal.SIGKILL else _log.info
                log("process.ended", name=name, **ended)
                return code
            if code in _FOR_GOOD:
                _log.error("process.ended", name=name, **ended, advice="see its message")
                self._stop.request()
                return code
            delay = next_delay(delay, clock() - began)
            _log.warning("process.ended", name=name, **ended, again_after=delay)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stop.requested.wait()
                return 0  # how it ended before the stop does not count, restarted or not

    async def _run_once(self, start: ChildStart) -> int:
        name = start.name
        child = await self._start(start)
        self._children[name] = child
        _log.info("process.started", name=name, pid=child.pid)
        try:
            if self._stop.requested.is_set():
                _send(child, signal.SIGTERM)
            code = await child.wait()
        finally:
            del self._children[name]
        # Stopped so early that it did not listen yet, or was no host: orderly all the same.
        early = code in (-signal.SIGTERM, 128 + signal.SIGTERM)
        return 0 if early and self._stop.requested.is_set() else code

    async def _stop_them(self) -> None:
        await self._stop.requested.wait()
        self._signal_all(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._budget):
                await self._stop.at_once.wait()
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children.values():
            _send(child, number)


def _send(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        child.send_signal(number)
