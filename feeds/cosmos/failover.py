"""A region that does not answer: the client is made to read the account's regions again.

By itself the client does so every five minutes, and when a region says that writes have moved
(403/3). A region that refuses connections, or takes them and is silent, says nothing; so a
request without an answer makes us say it in its place: the client is told 403/3 by the hook in
which it shows a request, and nothing is sent. It then reads the account in the background. A
plain request, which follows, shows it which regions are silent to reads, within seconds.

This is done beside the requests, since each of them has its own bound, and at most every few
seconds, as long as they fail.

Limits: the account is read at the endpoint that the client was given, and then in its preferred
locations. Where none of these answers, the client stays with the regions it knows.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

T = TypeVar("T")
_SILENCE: Final = 2.0
"""Seconds without an answer that are one too many. No lease is lost in so short a time."""
_FIRST_PAUSE: Final = 1.0
_LAST_PAUSE: Final = 10.0
_LONGEST: Final = 10.0
_QUICK: Final[dict[str, Any]] = {"connection_timeout": 2, "read_timeout": 2, "retry_total": 0}
_OUT_OF_SERVICE: Final = 500


class Failover:
    """What the requests for one container have in common when regions fail."""

    def __init__(self, container: ContainerProxy) -> None:
        self.container = container
        self._suspected = asyncio.Event()
        self.suspected_at = -inf
        """When a region last did not answer, on the clock of the loop. What the client has
        signed by then may be for that region."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, container: ContainerProxy) -> AsyncIterator["Failover"]:
        """Look for the regions where that is needed, as long as the block lasts."""
        failover = cls(container)
        looking = asyncio.create_task(failover._run())
        try:
            yield failover
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    async def ask(self, request: Awaitable[T]) -> T:
        """Await the answer to a request.

        A region may be silent to one that its caller gives up, so that one is late, too.
        """
        late = asyncio.get_running_loop().call_later(_SILENCE, self._suspect)
        try:
            answer = await request
        except Exception as error:
            late.cancel()
            if is_unanswered(error):
                self._suspect()
            raise
        late.cancel()
        return answer

    def _suspect(self) -> None:
        self.suspected_at = asyncio.get_running_loop().time()
        self._suspected.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            for ask in (self._tell, partial(self.container.read, **_QUICK)):
                with suppress(Exception):  # the requests of callers tell what is wrong
                    async with asyncio.timeout(_LONGEST):
                        await ask()
            await asyncio.sleep(pause)
            lasts = self._suspected.is_set()
            pause = min(2 * pause, _LAST_PAUSE) if lasts else _FIRST_PAUSE

    async def _tell(self) -> None:
        # Of a write that nobody sends: told so of a read, the client would avoid a region for
        # reads, and that may be the one that answers.
        await self.container.delete_item(
            "none",
            "none",
            etag="none",
            match_condition=MatchConditions.IfNotModified,
            raw_request_hook=_writes_moved(),
        )


def is_unanswered(error: Exception) -> bool:
    """Say whether an error of the client means that its region is out of service."""
    if isinstance(error, CosmosHttpResponseError):
        return (error.status_code or _OUT_OF_SERVICE) >= _OUT_OF_SERVICE
    return isinstance(error, ServiceRequestError | ServiceResponseError)


def _writes_moved() -> Callable[[Any], None]:
    kind: Any = CosmosHttpResponseError  # it has no types
    moved, not_sent = kind(status_code=403, sub_status=3), TimeoutError("the client knows")
    answers: list[Exception] = [not_sent, moved]  # from behind

    def tell(_: Any) -> None:
        raise answers.pop()

    return tell
