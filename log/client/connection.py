"""One request to one broker over HTTP. Errors become those of feeds (``feeds.errors``)."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, NoReturn, TypeVar

import aiohttp

from changefeed.feeds.errors import (
    FeedError,
    FeedRefused,
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import RangeId
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import PLAIN, TLS
from changefeed.log.decoding import Undecodable, from_json
from changefeed.log.protocol.wire import CONTENT_TYPE, Refusal
from changefeed.runtime.errors import answered, in_one_line
from changefeed.runtime.http_answer import bounded_body, retry_after
from changefeed.runtime.tls import certificate_failure

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024
"""No broker answers with so many bytes: a page of records has 64 MiB and one block more."""
_CONNECT = 2.0
_OK = 200
_SERVER = 500
_TOO_MANY = 429


class BrokerConnection:
    """Connections that are kept, to any brokers. Make it with ``open``."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: BrokerAccess,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.access = access
        self._session = session
        self._tls = tls

    @classmethod
    @asynccontextmanager
    async def open(
        cls, access: BrokerAccess, *, over_tls: bool
    ) -> "AsyncIterator[BrokerConnection]":
        tls = access.tls() if over_tls else None
        connector = aiohttp.TCPConnector(limit=0, ssl=tls or True)
        async with aiohttp.ClientSession(
            connector=connector,
            skip_auto_headers=("User-Agent",),
        ) as session:
            yield cls(session, access, tls)

    async def ask(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        *,
        seconds: float,
        body: BytesIO | None = None,
        of: RangeId | None = None,
        any_answer: bool = False,
    ) -> bytes:
        """Return the body of an answer. Raise ``FeedUnavailable`` where none comes in time.

        ``of`` is the range that is asked about. ``any_answer``: also one that refuses.
        """
        headers = dict(self.access.headers)
        if body is not None:
            headers["Content-Type"] = CONTENT_TYPE
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT)
        try:
            async with self._session.request(
                method, url, params=query, data=body, headers=headers, timeout=limits
            ) as answer:
                content = await bounded_body(answer, MAX_ANSWER)
                if content is None:
                    raise FeedRefused(
                        f"what answers at {url} is no broker: it sends more than "
                        f"{MAX_ANSWER:,} bytes"
                    )
                if answer.status != _OK and not any_answer:
                    refuse(url, answer, content, of)
                return content
        except TimeoutError as error:
            raise FeedUnavailable(f"{url} did not answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, aiohttp.ClientSSLError):
                self.access.trust_more(self._tls)
                raise answered(FeedRefused(_tls_advice(url, error))) from error
            raise FeedUnavailable(f"{url} does not answer: {in_one_line(error)}") from error


def refuse(
    url: str, answer: aiohttp.ClientResponse, content: bytes, of: RangeId | None
) -> NoReturn:
    """Raise what an answer that is no success means."""
    try:
        said = from_json(content, Refusal)
    except Undecodable:
        said = Refusal(error="", message=f"it answered {answer.status} {answer.reason}")
    if answer.status >= _SERVER or answer.status == _TOO_MANY:
        wait = retry_after(answer.headers.get("Retry-After", ""))
        raise FeedUnavailable(f"{url}: {said.message}", wait)
    raise _error(said, of)


def _error(said: Refusal, of: RangeId | None) -> FeedError:
    if of is not None:
        match said.error:
            case "unknown-partition":
                return RangeUnknown(of)
            case "damaged":
                return RangeDamaged(of, said.message)
            case "out-of-range":
                return RangeRefused(of, said.message)
    return answered(FeedRefused(f"the brokers refused: {said.message}"))


def _tls_advice(url: str, error: aiohttp.ClientSSLError) -> str:
    """Say what a person has to change: no other attempt can mend it."""
    why = certificate_failure(error)
    if why is None:
        return (
            f"{url} does not speak TLS as this client does ({error}): write {PLAIN}: in place "
            f"of {TLS}: if the brokers have no certificate"
        )
    return (
        f"{url} cannot be trusted: {why}. Name the PEM file of the authority that signed it in "
        f"CHANGEFEED_BACKENDS__BROKERS__CA_FILE; look at the host name in the address, which "
        f"the certificate has to be for, and at the clock of this machine"
    )


def decoded(body: bytes, kind: type[T]) -> T:
    """Return what was answered; raise ``FeedRefused`` for what no broker says."""
    try:
        return from_json(body, kind)
    except Undecodable as error:
        shown: Any = body[:80]
        raise FeedRefused(
            f"what answers there is no broker of this version: {shown!r} ({error})"
        ) from error
