"""What ends a host: its first failure stops it in order, and is raised by ``run`` then."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from changefeed.host.events import HostEvents
from changefeed.host.retries import unwrap_single
from changefeed.runtime.cancellation import CancelledByStranger, cancelled_on_request


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
        self.suspect = suspect
        self.first: Exception | None = None

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Turn the failure of one task into an orderly stop of the host.

        That it is cancelled by something that it calls, or by a stranger, is one, too: without
        it, the host would go on as if nothing were missing.
        """
        try:
            with cancelled_on_request():
                await work
        except asyncio.CancelledError:
            if not self._stopping():
                self.record(self.by_stranger("a task of the host"))
            raise
        except Exception as error:  # noqa: BLE001 - kept, logged, and raised by run()
            self.record(error)

    def record(self, error: Exception) -> None:
        if self.first is None:
            self.first = unwrap_single(error)
            self._events.failed(self.first)
        self._failed(error)

    def by_stranger(self, what: str) -> CancelledByStranger:
        return CancelledByStranger.of_tasks(what, self.suspect)
