"""What a failure leads to. A call that may be answered later is made again, with growing
delays. Any other ends the host: the first stops it in order, and is raised by ``run`` then.
What has not ended in order is raised as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from changefeed.feeds.feed import RangeId
from changefeed.host.events import HostEvents
from changefeed.runtime.calls import unexpected_cancellation
from changefeed.runtime.delays import GrowingDelays
from changefeed.runtime.errors import Failure, Unavailable

T = TypeVar("T")
_NAMED = 20
_FIRST_DELAY, _MAX_DELAY = 0.2, 10.0


class Failures:
    """The failures of one host. ``failed`` is called with each, and stops it; ``stopping``
    says whether it was asked to stop. ``suspect`` is whose code may cancel tasks that it has
    not started.
    """

    def __init__(
        self,
        events: HostEvents,
        *,
        failed: Callable[[Exception], None],
        stopping: Callable[[], bool],
        suspect: str,
    ) -> None:
        self._events = events
        self._failed = failed
        self._stopping = stopping
        self._suspect = suspect
        self.first: Exception | None = None

    async def guard(
        self, work: Coroutine[Any, Any, object], what: str = "a task of the host"
    ) -> None:
        """Turn the failure of one task, which ``what`` names, into an orderly stop of the host.

        That it is cancelled by something that it calls, or by a stranger, is one, too: without
        it, the host would go on as if nothing were missing.
        """
        task = asyncio.current_task()
        assert task is not None, "a coroutine that runs has a task"
        try:
            await work
        except asyncio.CancelledError:
            if not (task.cancelling() and self._stopping()):
                self.record(self.unexpected_cancellation(what))
            raise
        except Exception as error:  # noqa: BLE001 - kept, logged, and raised by run()
            self.record(error)

    def record(self, error: Exception) -> None:
        if self.first is None:
            self.first = _unwrapped(error)
            self._events.failed(self.first)
        self._failed(error)

    def unexpected_cancellation(self, what: str) -> Failure:
        return unexpected_cancellation(what, self._suspect)


def incomplete_stop(
    cut_off: Collection[RangeId],
    left_to_expire: Collection[RangeId],
    not_closed: Collection[RangeId],
) -> Failure | None:
    """Say what has not ended in order when the host stopped, if anything. Nothing is lost.

    ``cut_off`` are ranges whose work in hand was cancelled, ``left_to_expire`` those whose
    leases could not be released; ``not_closed`` those that were cancelled with no change in
    hand, as a rule in the observer's ``open`` or ``close``.
    """
    parts = []
    if cut_off:
        parts.append(
            f"work in hand was cut off ({_names(cut_off)}) and comes again; unless a second "
            f"signal did that, give it more time (host.stop_timeout)"
        )
    if not_closed:
        parts.append(
            f"no change was in hand, but the observer did not open or close in time "
            f"({_names(not_closed)}); what does it wait for?"
        )
    if left_to_expire:
        parts.append(
            f"leases could not be released, others get them when they expire "
            f"({_names(left_to_expire)})"
        )
    what = "; ".join(parts)
    return Failure(f"the host stopped, but not in order: {what}") if parts else None


def _names(ranges: Collection[RangeId]) -> str:
    """Name the first few of them, and say how many more there are."""
    first = ", ".join(sorted(ranges)[:_NAMED])
    more = len(ranges) - _NAMED
    return f"{first}, and {more} more" if more > 0 else first


def _unwrapped(error: Exception) -> Exception:
    """Return the one error in a group of one, however deep."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class Retrier:
    """Asks the feed and the stores again until they answer. The caller bounds it."""

    def __init__(self, events: HostEvents, random: Random) -> None:
        self._events = events
        self._delays = GrowingDelays(_FIRST_DELAY, _MAX_DELAY, random)

    async def call(
        self,
        operation: str,
        call: Callable[[], Awaitable[T]],
        *,
        longest_delay: float = _MAX_DELAY,
    ) -> T:
        """Await ``call()`` until it raises no ``Unavailable``; ``operation`` names it in the
        log.
        """
        tries = 0
        while True:
            try:
                return await call()
            except Unavailable as error:
                tries += 1
                delay = replace(self._delays, longest=longest_delay).after(tries)
                delay += error.retry_after or 0.0  # never sooner than the other side wished
                self._events.retrying(operation, error, delay)
            await asyncio.sleep(delay)
