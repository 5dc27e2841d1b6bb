"""Further pages of a range by the request that the client has made for one of them.

The client makes each request anew: to route, sign and log it takes more than half of the CPU
of a page. So what it has signed for a place is kept for a minute, and sent again by the
client's own transport, which knows proxies and certificates, from another position.

After an answer that is not for us to judge (``Answer.is_ours``), and where nothing answers, the
client asks in its own way: it knows the other regions, renews tokens, and waits for busy
servers. Where somebody watches the client's requests, or may send them elsewhere, all go that
way.

Limits: an account may go back to a region that works again; that one is read after a minute at
the latest.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.transport import AsyncHttpTransport, HttpRequest
from azure.core.settings import settings
from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.topology import Place
from changefeed.runtime.unique_names import unique_name

_KEPT_FOR: Final = 60.0
"""Seconds. A signature is good for a quarter of an hour."""
_SILENCE: Final = 5.0
"""Seconds without a byte after which the client asks: it may know of another region by then."""
POSITION: Final = "if-none-match"
CONDITION: Final = "if-match"
ANSWER: Final = "prefer"
_OF_ONE: Final = {POSITION, CONDITION, ANSWER}
_LENGTH: Final = "content-length"
_LIMIT: Final = "x-ms-max-item-count"
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


class RepeatedReads:
    """The last request of a client for each place of one container."""

    def __init__(self, container: ContainerProxy, failover: Failover) -> None:
        self._container = container
        self._failover = failover
        self._signed = dict[Place, SignedRequest]()

    async def ask(self, place: Place, after: Mapping[str, str], limit: int) -> Answer | None:
        """Ask for the page behind a position, which is the header that names it, or none for
        the first; return ``None`` where the client has to ask.
        """
        signed = self._signed.get(place)
        if signed is None or not signed.is_good(self._failover):
            return None
        answer = None
        try:
            answer = await signed.sent_again({**after, _LIMIT: str(limit)})
        except (AzureError, ValueError):  # the latter where the client was closed
            return None
        finally:  # also where its caller has given it up
            if (answer is None or not answer.is_page) and self._signed.get(place) is signed:
                del self._signed[place]
        return answer if answer.is_ours else None

    def keep(self, place: Place, signed: SignedRequest, answer: Answer) -> None:
        """Ask for the next page by this request of the client, if its answer was one."""
        if not answer.is_page or is_watched(self._container):
            return
        # Places go as ranges are split.
        self._signed = {x: y for x, y in self._signed.items() if y.is_good(self._failover)}
        self._signed[place] = signed


def is_watched(container: ContainerProxy) -> bool:
    """Whether each request is to be seen, or may go to other regions."""
    breaker = os.environ.get("AZURE_COSMOS_ENABLE_CIRCUIT_BREAKER", "").lower() == "true"
    hedging = container.client_connection.availability_strategy is not None
    return breaker or hedging or settings.tracing_enabled()
