"""The HTTP client of brokers, for readers, producers and commands.

Any broker can answer any question, so one that does not answer is passed over: it is asked
last for some seconds. Errors become those of feeds (``feeds.errors``).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from changefeed.feeds.brokers.access import BrokerAccess
from changefeed.feeds.brokers.address import PLAIN, TLS, BrokersAddress
from changefeed.feeds.brokers.decoding import Undecodable, from_json
from changefeed.feeds.brokers.protocol import Answer, AppendRequest, ReadResult, Topology
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.wire import (
    CONTENT_TYPE,
    Compaction,
    End,
    Moved,
    Positions,
    Refusal,
    Since,
    Storage,
    WireDamaged,
    framed_append,
    parsed_read,
)
from changefeed.feeds.errors import (
    FeedError,
    FeedRefused,
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import answered
from changefeed.runtime.http_answer import bounded_body, retry_after
from changefeed.runtime.tls import certificate_failure

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024
"""No broker answers with so many bytes: a page of records has 64 MiB and one block more."""
_CONNECT = 2.0
_CHANGE = 30.0
_COMPACTION = 60.0
_ASIDE = 5.0  # a broker that did not answer is asked last for so long, in seconds
_OK = 200
_SERVER = 500
_TOO_MANY = 429


class BrokerClient:
    """Asks the brokers of one collection. Make it with ``open``."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: BrokersAddress,
        access: BrokerAccess,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._session = session
        self._tls = tls
        self._address = address
        self._access = access
        self._urls: Sequence[str] = address.urls
        self._aside: dict[str, float] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, address: BrokersAddress, access: BrokerAccess
    ) -> "AsyncIterator[BrokerClient]":
        tls = access.tls() if any(x.startswith("https:") for x in address.urls) else None
        connector = aiohttp.TCPConnector(limit=0, ssl=tls or True)
        async with aiohttp.ClientSession(
            connector=connector,
            skip_auto_headers=("User-Agent",),
        ) as session:
            yield cls(session, address, access, tls)

    @property
    def collection(self) -> str:
        return self._address.collection

    @property
    def urls(self) -> Sequence[str]:
        """The brokers of the newest topology that was seen, and those of the address."""
        return self._urls

    async def routes(
        self,
        *,
        at_least: int = 0,
        newer_than: int = 0,
        wait: float = 0.0,
    ) -> Routes:
        """Return the topology that one of the brokers knows.

        One that knows an older catalog than ``at_least`` looks for a newer one first. One that
        knows none ``newer_than`` that waits for it, for so many seconds.
        """
        asked = {"at_least": str(at_least)} if at_least else {}
        if wait:
            asked |= {"newer_than": str(newer_than), "wait": f"{wait:g}"}
        body = await self._ask("GET", self._urls, self._path(), asked, wait=wait)
        found = Routes(_decoded(body, Topology), self._address.urls[0].partition(":")[0])
        self._urls = tuple(dict.fromkeys((*found.urls, *self._address.urls)))
        assert self._urls, "the brokers of the address are always among them"
        return found

    async def append(
        self, url: str, log: str, request: AppendRequest, *, catalog: int, seconds: float
    ) -> Answer:
        """Send a request to one broker; return what became of it.

        ``catalog`` is the newest that is known here: a broker that knows an older one looks for
        it. Raise ``FeedUnavailable`` where the fate of the request is unknown.
        """
        assert request.batches, f"nothing to append at {url}"
        answer = await self._once(
            "POST",
            f"{url}{self._path('records')}",
            {"log": log, "catalog": str(catalog)},
            body=BytesIO(b"".join(framed_append(request))),
            seconds=seconds,
        )
        found: Answer = _decoded(answer, Answer)  # type: ignore[arg-type]
        return found

    async def read(
        self,
        urls: Iterable[str],
        log: str,
        partition: RangeId,
        *,
        after: int,
        most: int,
        wait: float,
    ) -> ReadResult:
        """Return records after a sequence: about ``most`` bytes, or what there is.

        With nothing there, wait for so many seconds.
        """
        assert most > 0, f"{most} bytes of {partition!r} are nothing to read"
        path = self._path("partitions", partition, "records")
        asked = {"log": log, "after": str(after), "bytes": str(most), "wait": f"{wait:g}"}
        body = await self._ask("GET", urls, path, asked, wait=wait, of=partition)
        try:
            return parsed_read(body)
        except WireDamaged as error:
            raise FeedUnavailable(f"a broker's answer was damaged: {error}") from error

    async def end(self, urls: Iterable[str], log: str, partition: RangeId) -> End:
        path = self._path("partitions", partition, "end")
        return _decoded(await self._ask("GET", urls, path, {"log": log}, of=partition), End)

    async def ends(
        self, urls: Iterable[str], log: str, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, Moved]:
        """Return what has come further than these sequences, as one broker knows.

        With nothing there, wait for so many seconds.
        """
        asked = {"log": log, "wait": f"{wait:g}"}
        body = await self._ask(
            "POST",
            urls,
            self._path("ends"),
            asked,
            wait=wait,
            body=msgspec.json.encode(Positions(after={**after})),
        )
        return _decoded(body, dict[RangeId, Moved])

    async def sequence_before(
        self, urls: Iterable[str], log: str, partition: RangeId, time_us: int
    ) -> int:
        """Return the last sequence before the first record committed at or after a time."""
        path = self._path("partitions", partition, "since")
        asked = {"log": log, "time_us": str(time_us)}
        return _decoded(await self._ask("GET", urls, path, asked, of=partition), Since).sequence

    async def storage(self, log: str) -> Storage:
        """Return how much is stored, and who sends. A broker lists objects for that."""
        path = self._path("storage")
        return _decoded(await self._ask("GET", self._urls, path, {"log": log}), Storage)

    async def status(self, url: str, kind: type[T]) -> T:
        """Return what one broker says of itself."""
        seconds = self._access.call_timeout
        return _decoded(await self._once("GET", f"{url}/v1/status", {}, seconds=seconds), kind)

    # What changes the collection.

    async def create(self, parts: int) -> Topology:
        """Create the collection; its number of parts is for good."""
        return await self._change("PUT", (), {"parts": parts})

    async def split(self, partition: RangeId | None) -> Topology:
        """Cut an open partition in halves, or all of them."""
        return await self._change("POST", ("split",), {"partition": partition})

    async def merge(self, partition: RangeId | None) -> Topology:
        """Make one of an open partition and the next of its part, or of all pairs."""
        return await self._change("POST", ("merge",), {"partition": partition})

    async def retain(self, *, seconds: float | None, most_bytes: int | None) -> Topology:
        """Keep records for so long, or so many bytes of them; ``None``: for ever."""
        return await self._change(
            "POST", ("retain",), {"seconds": seconds, "bytes": most_bytes}
        )

    async def compact(self, url: str) -> Compaction:
        """Let one broker compact what is in its care; it answers within a while."""
        place = f"{url}{self._path('compact')}"
        answer = await self._once("POST", place, {}, seconds=_COMPACTION)
        return _decoded(answer, Compaction)

    async def _change(
        self, method: str, path: Sequence[str], asked: Mapping[str, Any]
    ) -> Topology:
        """Ask one broker, and no other after it: whether it did may not be known."""
        seconds = self._access.call_timeout
        failed: FeedUnavailable | None = None
        for url in self._in_order(self._urls):
            try:
                await self._once("GET", f"{url}/readyz", {}, seconds=seconds, any_answer=True)
            except FeedUnavailable as error:
                failed = error
                continue
            body = BytesIO(msgspec.json.encode(asked))
            place = f"{url}{self._path(*path)}"
            answer = await self._once(method, place, {}, seconds=_CHANGE, body=body)
            return _decoded(answer, Topology)
        raise failed or FeedUnavailable("no broker is known")

    def _path(self, *more: str) -> str:
        parts = ("v1", "collections", self.collection, *more)
        return "".join(f"/{quote(x, safe='')}" for x in parts)

    async def _ask(
        self,
        method: str,
        urls: Iterable[str],
        path: str,
        query: Mapping[str, str],
        *,
        wait: float = 0.0,
        of: RangeId | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Ask one broker after the other until one answers, each may ``wait`` first."""
        failed: FeedUnavailable | None = None
        for url in self._in_order(urls):
            try:
                return await self._once(
                    method,
                    f"{url}{path}",
                    query,
                    seconds=wait + self._access.call_timeout,
                    of=of,
                    body=None if body is None else BytesIO(body),
                )
            except FeedUnavailable as error:
                self._aside[url] = asyncio.get_running_loop().time() + _ASIDE
                failed = error
        raise failed or FeedUnavailable(f"no broker of {self.collection!r} is known")

    def _in_order(self, urls: Iterable[str]) -> Sequence[str]:
        now = asyncio.get_running_loop().time()
        return sorted(urls, key=lambda x: self._aside.get(x, 0) > now)

    async def _once(
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
        headers = dict(self._access.headers)
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
                    _refuse(url, answer, content, of)
                return content
        except TimeoutError as error:
            raise FeedUnavailable(f"{url} did not answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, aiohttp.ClientSSLError):
                self._access.trust_more(self._tls)
                raise answered(FeedRefused(_tls_advice(url, error))) from error
            raise FeedUnavailable(f"{url} does not answer: {error or type(error)}") from error


def _refuse(
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
            case "gone" | "beyond":
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


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return from_json(body, kind)
    except Undecodable as error:
        shown: Any = body[:80]
        raise FeedRefused(
            f"what answers there is no broker of this version: {shown!r} ({error})"
        ) from error
