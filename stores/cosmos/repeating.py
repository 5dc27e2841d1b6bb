"""Further changes to an item by the request that the client has made for one of them.

As with pages (``feeds.cosmos.repeating``), the client takes most of the CPU of a write, and a
host writes each of its leases some times a minute. What was signed for an item is good for any
change to it: the signature covers neither the etag, the body, nor how much is answered.

Only an answer that the change was made counts. After any other, and where none came, the client
writes under the same etag; it may find the change made, as where it repeats a write by itself.
The session of the client learns of each change, for reads that follow.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest
from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.repeating import ANSWER, CONDITION, SignedRequest, is_watched

_MADE: Final = (200, 204)
_SESSION: Final = "x-ms-session-token"


class RepeatedChanges:
    """The last requests of a client for changes to items of one container."""

    def __init__(self, container: ContainerProxy, failover: Failover) -> None:
        self._container = container
        self._failover = failover
        self._signed = dict[str, SignedRequest]()  # the oldest first

    async def make(
        self, name: str, operations: Sequence[Any], etag: str, *, whole: bool
    ) -> dict[str, Any] | None:
        """Return the new etag of the item, or the whole of it: as the client was asked to have
        it answered. Return ``None`` where the client has to ask.
        """
        signed = self._signed.get(name)
        if signed is None or not signed.is_good(self._failover):
            return None
        try:
            body = msgspec.json.encode({"operations": operations})
            own = {CONDITION: etag} | ({} if whole else {ANSWER: "return=minimal"})
            answer = await signed.sent_again(own, body)
            found = _made_by(answer, whole=whole)
        except (AzureError, msgspec.MsgspecError, ValueError):  # or the client was closed
            found = None
        if found is None:
            self._signed.pop(name, None)
            return None
        self._show(found, answer.headers)
        return found

    def _show(self, found: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Let the client read in the session that has the change in it."""
        connection = self._container.client_connection
        session: Any = connection.session  # it has no types
        if session is not None:
            session.update_session(connection, found, headers)

    def keep(self, name: str, request: PipelineRequest[Any]) -> None:
        """Make the next such change by this request, which the client is about to send.

        Where an account takes writes in several regions, the client says with each what it has
        seen: it goes on to.
        """
        if is_watched(self._container) or _SESSION in request.http_request.headers:
            return
        while self._signed and not next(iter(self._signed.values())).is_good(self._failover):
            del self._signed[next(iter(self._signed))]
        self._signed.pop(name, None)  # the youngest is the last
        self._signed[name] = SignedRequest.by_client(request)


def _made_by(answer: Answer, *, whole: bool) -> dict[str, Any] | None:
    if answer.status not in _MADE or not answer.etag:
        return None
    if not whole:
        return {"_etag": answer.etag}
    return msgspec.json.decode(answer.body, type=dict[str, Any])
