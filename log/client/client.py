"""The HTTP client of brokers, for readers, producers and commands.

Any broker can answer any question, so one that does not answer is passed over: it is asked
last for some seconds. Errors become those of feeds (``feeds.errors``).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.connection import BrokerConnection, decoded
from changefeed.log.decoding import Undecodable
from changefeed.log.protocol.messages import Answer, AppendRequest, ReadResult, Topology
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import (
    Compaction,
    PartitionBounds,
    PartitionNews,
    Storage,
    decode_read,
    encode_append,
)

T = TypeVar("T")

_CHANGE = 30.0
_COMPACTION = 60.0
_ASIDE = 5.0  # a broker that did not answer is asked last for so long, in seconds


class BrokerClient:
    """Asks the brokers of one collection. Make it with ``open``."""

    def __init__(self, connection: BrokerConnection, address: BrokersAddress) -> None:
        self._connection = connection
        self._address = address
        self._routes: Routes | None = None
        self._aside: dict[str, float] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, address: BrokersAddress, access: BrokerAccess
    ) -> "AsyncIterator[BrokerClient]":
        over_tls = any(x.startswith("https:") for x in address.urls)
        async with BrokerConnection.open(access, over_tls=over_tls) as connection:
            yield cls(connection, address)

    @property
    def name(self) -> str:
        return self._address.collection

    @property
    def urls(self) -> Sequence[str]:
        """The brokers of the newest topology that was seen, and those of the address."""
        known = () if self._routes is None else self._routes.urls
        return tuple(dict.fromkeys((*known, *self._address.urls)))

    async def routes(
        self,
        *,
        at_least: int = 0,
        newer_than: int = 0,
        wait: float = 0.0,
    ) -> Routes:
        """Return the newest topology that one of the brokers knows, or this client.

        A broker that knows an older catalog than ``at_least``, or than this client, looks for a
        newer one first. One that knows none ``newer_than`` that waits for it, for so many
        seconds. What else is asked here is of the collection that was found first: brokers
        refuse it, if another collection has the name by now.
        """
        known = self._routes
        least = max(at_least, 0 if known is None else known.topology.catalog)
        asked = {"at_least": str(least)} if least else {}
        if wait:
            asked |= {"newer_than": str(newer_than), "wait": f"{wait:g}"}
        body = await self._ask("GET", self.urls, self._path(), asked, wait=wait)
        found = Routes(decoded(body, Topology), self._address.urls[0].partition(":")[0])
        known = self._routes or found
        if found.identity != known.identity:
            return found
        if found.topology.catalog >= known.topology.catalog:
            self._routes = found
        return self._known

    @property
    def _known(self) -> Routes:
        assert self._routes is not None, f"routes of {self.name!r} are asked for first"
        return self._routes

    async def append(
        self, url: str, log: str, request: AppendRequest, *, catalog: int, seconds: float
    ) -> Answer:
        """Send a request to one broker; return what became of it.

        ``catalog`` is the newest that is known here: a broker that knows an older one looks for
        it. Raise ``FeedUnavailable`` where the fate of the request is unknown.
        """
        assert request.batches, f"nothing to append at {url}"
        answer = await self._connection.ask(
            "POST",
            f"{url}{self._path('records')}",
            {"log": log, "catalog": str(catalog)},
            body=BytesIO(encode_append(request)),
            seconds=seconds,
        )
        found: Answer = decoded(answer, Answer)  # type: ignore[arg-type]
        return found

    async def read(self, name: RangeId, *, after: int, most: int, wait: float) -> ReadResult:
        """See ``Source.read``."""
        assert most > 0, f"{most} bytes of {name!r} are nothing to read"
        asked = {"after": str(after), "bytes": str(most), "wait": f"{wait:g}"}
        body = await self._ask_about(name, "records", asked, wait=wait)
        try:
            return decode_read(body)
        except Undecodable as error:
            raise FeedUnavailable(f"a broker's answer was damaged: {error}") from error

    async def end(self, name: RangeId, *, of_writer: bool = False) -> PartitionBounds:
        """See ``Source.end``."""
        url = ""
        if of_writer:
            url = self._known.url_of(self._known.partition(name).broker)
            if not url:
                raise FeedUnavailable(f"the broker that writes range {name!r} is not there")
        return decoded(await self._ask_about(name, "end", {}, url), PartitionBounds)

    async def news(
        self, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, PartitionNews]:
        """See ``Source.news``."""
        body = await self._ask(
            "POST",
            self._known.to_read(self._known.partition(next(iter(after)))),
            self._path("ends"),
            {"log": self._known.identity, "wait": f"{wait:g}"},
            wait=wait,
            body=msgspec.json.encode(after),
        )
        return decoded(body, dict[RangeId, PartitionNews])

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        """See ``Source.sequence_before``."""
        body = await self._ask_about(name, "since", {"time_us": str(time_us)})
        return decoded(body, int)

    async def storage(self, log: str) -> Storage:
        """Return how much is stored, and who sends. A broker lists objects for that."""
        path = self._path("storage")
        return decoded(await self._ask("GET", self.urls, path, {"log": log}), Storage)

    async def status(self, url: str, kind: type[T]) -> T:
        """Return what one broker says of itself."""
        seconds = self._connection.access.call_timeout
        answer = await self._connection.ask("GET", f"{url}/v1/status", {}, seconds=seconds)
        return decoded(answer, kind)

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
        answer = await self._connection.ask("POST", place, {}, seconds=_COMPACTION)
        return decoded(answer, Compaction)

    async def _change(
        self, method: str, path: Sequence[str], asked: Mapping[str, Any]
    ) -> Topology:
        """Ask one broker, and no other after it: whether it did may not be known."""
        ask, seconds = self._connection.ask, self._connection.access.call_timeout
        failed: FeedUnavailable | None = None
        for url in self._in_order(self.urls):
            try:
                await ask("GET", f"{url}/readyz", {}, seconds=seconds, any_answer=True)
            except FeedUnavailable as error:
                failed = error
                continue
            body = BytesIO(msgspec.json.encode(asked))
            place = f"{url}{self._path(*path)}"
            answer = await ask(method, place, {}, seconds=_CHANGE, body=body)
            return decoded(answer, Topology)
        raise failed or FeedUnavailable("no broker is known")

    def _path(self, *more: str) -> str:
        parts = ("v1", "collections", self.name, *more)
        return "".join(f"/{quote(x, safe='')}" for x in parts)

    async def _ask_about(
        self,
        name: RangeId,
        what: str,
        query: Mapping[str, str],
        url: str = "",
        *,
        wait: float = 0.0,
    ) -> bytes:
        """Ask about a partition: brokers in the order of the routes, or the one given."""
        urls = [url] if url else self._known.to_read(self._known.partition(name))
        path = self._path("partitions", name, what)
        query = {"log": self._known.identity, **query}
        return await self._ask("GET", urls, path, query, wait=wait, of=name)

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
                return await self._connection.ask(
                    method,
                    f"{url}{path}",
                    query,
                    seconds=wait + self._connection.access.call_timeout,
                    of=of,
                    body=None if body is None else BytesIO(body),
                )
            except FeedUnavailable as error:
                self._aside[url] = asyncio.get_running_loop().time() + _ASIDE
                failed = error
        raise failed or FeedUnavailable(f"no broker of {self.name!r} is known")

    def _in_order(self, urls: Iterable[str]) -> Sequence[str]:
        now = asyncio.get_running_loop().time()
        return sorted(urls, key=lambda x: self._aside.get(x, 0) > now)
