"""Further pages of a range, and changes to an item, by the request that the client has made for
one of them.

The client makes each request anew: to route, sign and log it takes more than half of the CPU
of a page, and most of that of a write. So what it has signed is kept for a minute, and sent
again by the client's own transport, which knows proxies and certificates: for a place from
another position, for an item with another change, as the signature covers neither.

After an answer that is not for us to judge (``Answer.is_ours``), and where nothing answers, the
client asks in its own way: it knows the other regions, renews tokens, and waits for busy
servers. Where somebody watches the client's requests, or may send them elsewhere, all go that
way.

Limits: an account may go back to a region that works again; that one is read after a minute at
the latest.
"""

import asyncio
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.transport import AsyncHttpTransport, HttpRequest
from azure.core.settings import settings
from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.failover import Failover
from changefeed.runtime.unique_names import unique_name

K = TypeVar("K", bound=Hashable)
_KEPT_FOR: Final = 60.0
"""Seconds. A signature is good for a quarter of an hour."""
_SILENCE: Final = 5.0
"""Seconds without a byte after which the client asks: it may know of another region by then."""
POSITION: Final = "if-none-match"
CONDITION: Final = "if-match"
ANSWER: Final = "prefer"
_OF_ONE: Final = {POSITION, CONDITION, ANSWER}
_LENGTH: Final = "content-length"
LIMIT: Final = "x-ms-max-item-count"
_ID: Final = "x-ms-activity-id"
_OF_TRANSPORT: Final = (
    "connection_timeout",
    "read_timeout",
    "connection_verify",
    "connection_cert",
    "proxies",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as the client has sent it, until it is too old."""

    method: str
    url: str
    headers: Mapping[str, str]
    transport: AsyncHttpTransport[HttpRequest, Any]
    options: Mapping[str, Any]
    made_at: float

    @classmethod
    def by_client(cls, request: PipelineRequest[Any]) -> "SignedRequest":
        options, sent = request.context.options, request.http_request.headers
        return cls(
            method=request.http_request.method,
            url=request.http_request.url,
            headers={x.lower(): y for x, y in sent.items() if x.lower() not in _OF_ONE},
            transport=cast("Any", request.context.transport),  # of an async client
            options={x: options[x] for x in _OF_TRANSPORT if x in options},
            made_at=asyncio.get_running_loop().time(),
        )

    def is_good(self, failover: Failover) -> bool:
        """Whether it is young, and no region has failed since."""
        oldest = asyncio.get_running_loop().time() - _KEPT_FOR
        return self.made_at >= oldest and self.made_at > failover.suspected_at

    async def sent_again(self, own: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Send it with headers and a body of its own."""
        headers = {**self.headers, **own, _ID: str(UUID(unique_name()))}
        if body is not None:
            headers[_LENGTH] = str(len(body))
        request = HttpRequest(self.method, self.url, data=body)
        request.headers = headers  # no name is twice in it, and their own mapping is slow
        options = {**self.options, "read_timeout": min(_SILENCE, self.options["read_timeout"])}
        return Answer.of(await self.transport.send(request, **options))


class RepeatedRequests(Generic[K]):
    """The last request of a client for each page, or change, of one container."""

    def __init__(self, failover: Failover) -> None:
        self._failover = failover
        self._signed = dict[K, SignedRequest]()  # the oldest first

    async def ask(
        self,
        what: K,
        own: Mapping[str, str],
        body: bytes | None = None,
        *,
        goes_on: Callable[[Answer], bool],
    ) -> Answer | None:
        """Ask by the request that is kept, as long as its answers say that it ``goes_on``;
        return ``None`` where the client has to ask.
        """
        signed = self._signed.get(what)
        if signed is None or not signed.is_good(self._failover):
            return None
        answer = None
        try:
            answer = await signed.sent_again(own, body)
        except (AzureError, ValueError):  # the latter where the client was closed
            return None
        finally:  # also where its caller has given it up
            if (answer is None or not goes_on(answer)) and self._signed.get(what) is signed:
                del self._signed[what]
        return answer

    def keep(self, what: K, signed: SignedRequest) -> None:
        """Ask for more of it by this request of the client, unless each is to be seen."""
        if is_watched(self._failover.container):
            return
        while self._signed and not next(iter(self._signed.values())).is_good(self._failover):
            del self._signed[next(iter(self._signed))]
        self._signed.pop(what, None)  # the youngest is the last
        self._signed[what] = signed


def is_watched(container: ContainerProxy) -> bool:
    """Whether each request is to be seen, or may go to other regions."""
    breaker = os.environ.get("AZURE_COSMOS_ENABLE_CIRCUIT_BREAKER", "").lower() == "true"
    hedging = container.client_connection.availability_strategy is not None
    return breaker or hedging or settings.tracing_enabled()
