"""A broker over HTTP: what ``log.client.client`` asks, and what people and probes do.

    GET  /livez  /readyz  /metrics                       open to all who reach the address
    GET  /v1/status                                      the cluster as this broker sees it
    POST /v1/ping                                        what brokers tell each other
    GET  /v1/collections/C                               the topology; waits for a newer one
    POST /v1/collections/C/records                       append a request, all of it or nothing
    POST /v1/collections/C/ends                          which of many partitions have more
    GET  /v1/collections/C/partitions/P/records          read, and wait for a first record
    GET  /v1/collections/C/partitions/P/end              the last sequence, and what is gone
    GET  /v1/collections/C/partitions/P/since            the sequence before a time
    PUT  /v1/collections/C                               create, with {"parts": 12}
    GET  /v1/collections/C/storage                       how much is stored, and by whom
    POST /v1/collections/C/split  merge  retain          change it
    POST /v1/collections/C/compact                       compact what is in this broker's care

Whatever is refused is a ``Refusal`` in JSON with a 4xx, and has changed nothing. With a token
set, all of /v1 needs it.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web
from msgspec.structs import replace

from changefeed.feeds.errors import (
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.batches import check_names
from changefeed.log.brokers.budget import Budget
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.ends import moved_partitions
from changefeed.log.brokers.members import Heartbeat
from changefeed.log.brokers.metrics import BrokerMetrics
from changefeed.log.brokers.requests import (
    CollectionRequest,
    RangeRequest,
    RetentionRequest,
    body_of,
    collection_of,
    number_in,
    partition_of,
    read_body,
    seconds_in,
    size_of,
)
from changefeed.log.decoding import Undecodable
from changefeed.log.protocol.wire import (
    CONTENT_TYPE,
    Refusal,
    decode_append,
    encode_read,
)
from changefeed.log.rows.partition_reader import EARLIEST
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.scrape import Scrape, accepts_gzip
from changefeed.runtime.secret import Secret
from changefeed.runtime.web_server import WebLimits

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LIMITS = WebLimits(most=4096, backlog=4096, request=30.0, answer=75.0, idle=120.0, shutdown=2.0)
"""A reader may wait 30 seconds for a record, a producer for a slow store. When a broker starts,
all clients come at once."""
_MAX_WAIT = 30.0
_MAX_PAGE = 64 * 1024 * 1024
_RETRY_AFTER = "1"

_log = get_logger()

_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (RangeUnknown, 404, "unknown-partition"),
    (RangeDamaged, 422, "damaged"),
    (RangeRefused, 416, "out-of-range"),
    (Undecodable, 400, "bad-body"),
    (FeedUnavailable, 503, "unavailable"),
    (StoreError, 503, "store"),
    (UserError, 400, "refused"),
)
"""What an error of ours is over HTTP: the first that fits."""


class BrokerServer:
    """The handlers of one broker. ``problems`` says why it is not ready, if it is not."""

    def __init__(
        self,
        core: BrokerCore,
        meters: BrokerMetrics,
        scrape: Scrape,
        *,
        token: Secret | None,
        problems: Callable[[], list[str]],
    ) -> None:
        self._core = core
        self._meters = meters
        self._scrape = scrape
        self._token = token
        self._problems = problems
        self._bodies = Budget(core.settings.buffer_bytes)
        self._running: set[asyncio.Task[bool]] = set()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._bordered])
        one = "/v1/collections/{collection}"
        of = f"{one}/partitions/{{partition}}"
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/status", self._status),
                web.post("/v1/ping", self._ping),
                web.get(one, self._topology),
                web.put(one, self._create),
                web.post(f"{one}/records", self._append),
                web.post(f"{one}/ends", self._ends),
                web.post(f"{one}/split", self._split),
                web.post(f"{one}/merge", self._merge),
                web.post(f"{one}/retain", self._retain),
                web.post(f"{one}/compact", self._compact),
                web.get(f"{one}/storage", self._storage),
                web.get(f"{of}/records", self._read),
                web.get(f"{of}/end", self._end),
                web.get(f"{of}/since", self._since),
            ]
        )
        return app

    @web.middleware
    async def _bordered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may come in, and make an answer of every error."""
        try:
            if request.path.startswith("/v1"):
                self._check_token(request)
            with self._bodies.taken(size_of(request)):
                return await handler(request)
        except web.HTTPException as refused:
            text = refused.text or refused.reason
            return _refusal(refused.status, Refusal(error="http", message=text))
        except (
            FeedUnavailable,
            RangeUnknown,
            StoreError,
            UserError,
            Undecodable,
        ) as e:
            for kind, status, name in _STATUS:
                if isinstance(e, kind):
                    return _refusal(status, Refusal(error=name, message=str(e)))
            raise
        except Exception:  # noqa: BLE001 - the border to clients
            _log.exception("broker.failed", operation="answer a request", path=request.path)
            failed = Refusal(error="bug", message="the broker failed; its log says how")
            return _refusal(500, failed)

    def _check_token(self, request: web.Request) -> None:
        if self._token is None:
            return
        given = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self._token.current()}".encode()):
            raise web.HTTPUnauthorized(
                text="a token is needed, and this is not it: set "
                "CHANGEFEED_BACKENDS__BROKERS__TOKEN to that of the brokers"
            )

    # For people and probes.

    async def _livez(self, _: web.Request) -> web.Response:
        return web.json_response({"broker": self._core.name, "alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        problems = self._problems()
        return web.json_response(
            {"broker": self._core.name, "ready": not problems, "problems": problems},
            status=503 if problems else 200,
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        packed = accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
        headers = {hdrs.CONTENT_TYPE: self._scrape.content_type}
        if packed:
            headers |= {hdrs.CONTENT_ENCODING: "gzip", hdrs.VARY: hdrs.ACCEPT_ENCODING}
        return web.Response(body=await self._scrape.render(compressed=packed), headers=headers)

    async def _status(self, _: web.Request) -> web.Response:
        return _json(self._core.status())

    # For other brokers.

    async def _ping(self, request: web.Request) -> web.Response:
        return _json(self._core.presence.pinged(await body_of(request, Heartbeat)))

    # For producers and readers.

    async def _topology(self, request: web.Request) -> web.Response:
        at_least = number_in(request.query, "at_least", 0)
        if self._core.catalog.number < at_least:
            await self._core.catalogs.refresh()
        newer_than = number_in(request.query, "newer_than", 0)
        wait = min(seconds_in(request.query, "wait"), _MAX_WAIT)
        self._core.watch.hear_of(newer_than)
        await self._core.watch.wait_for_newer(newer_than, wait)
        self._core.check_sight()
        collection = collection_of(request)
        await self._identity(collection)
        return _json(self._core.shown(collection))

    async def _append(self, request: web.Request) -> web.Response:
        if request.content_type != CONTENT_TYPE:
            raise web.HTTPUnsupportedMediaType(
                text=f"records come as {CONTENT_TYPE}, not {request.content_type}"
            )
        collection = await self._checked(request)
        self._core.watch.hear_of(number_in(request.query, "catalog", 0))
        began = asyncio.get_running_loop().time()
        asked = decode_append(await read_body(request))
        answer = await self._core.append(collection, asked)
        elapsed = asyncio.get_running_loop().time() - began
        self._meters.appended(collection, asked, answer, elapsed)
        return _json(answer)

    async def _read(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        query = request.query
        partition, after = partition_of(request), number_in(query, "after", 0)
        result = await self._core.read(
            collection,
            partition,
            after,
            max_bytes=min(number_in(query, "bytes", 1024 * 1024), _MAX_PAGE),
            wait=min(seconds_in(query, "wait"), _MAX_WAIT),
        )
        behind = await self._core.behind(collection, partition, after, result)
        self._meters.read(collection, result, behind)
        return web.Response(body=encode_read(result), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    async def _ends(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        asked = await body_of(request, dict[RangeId, int])
        check_names([*asked])
        found = await moved_partitions(
            self._core,
            collection,
            asked,
            wait=min(seconds_in(request.query, "wait"), _MAX_WAIT),
            is_gone=lambda: request.transport is None,
        )
        return _json(found)

    async def _end(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        return _json(await self._core.end(collection, partition_of(request)))

    async def _since(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        time_us = number_in(request.query, "time_us", None, least=EARLIEST)
        partition = partition_of(request)
        found = await self._core.sequence_before(collection, partition, time_us)
        return _json(found)

    async def _checked(self, request: web.Request) -> str:
        """Return the collection, if it is the one that the client means."""
        collection, log = collection_of(request), request.query.get("log")
        identity = await self._identity(collection)
        if log not in (None, identity):
            raise web.HTTPConflict(
                text=f"collection {collection!r} is another one than the client knows: it was "
                f"deleted and created again, or this is a broker of another cluster"
            )
        return collection

    async def _identity(self, collection: str) -> str:
        """Return the identity of a collection, which may be new to us."""
        return (await self._core.catalogs.find(collection)).identity

    async def _storage(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        return _json(await self._core.storage(collection))

    # For what changes the cluster.

    async def _create(self, request: web.Request) -> web.Response:
        asked = await body_of(request, CollectionRequest)
        name = collection_of(request)
        await self._core.catalogs.create(name, parts=asked.parts)
        return await self._topology(request)

    async def _split(self, request: web.Request) -> web.Response:
        asked = await body_of(request, RangeRequest)
        await self._core.catalogs.split(collection_of(request), asked.partition)
        return await self._topology(request)

    async def _merge(self, request: web.Request) -> web.Response:
        asked = await body_of(request, RangeRequest)
        await self._core.catalogs.merge(collection_of(request), asked.partition)
        return await self._topology(request)

    async def _retain(self, request: web.Request) -> web.Response:
        asked, name = await body_of(request, RetentionRequest), collection_of(request)
        await self._core.catalogs.retain(name, seconds=asked.seconds, bytes_=asked.bytes)
        return await self._topology(request)

    async def _compact(self, request: web.Request) -> web.Response:
        """Compact all that can be, for a while; what is not done by then goes on."""
        await self._identity(collection_of(request))
        before = self._core.compactor.done
        running = asyncio.create_task(self._core.compactor.step(everything=True))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait([running], timeout=_MAX_WAIT)
        made = self._core.compactor.done.plus(before, -1)
        return _json(replace(made, ended=bool(done)))


def _json(value: object) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, content_type="application/json", charset="utf-8")


def _refusal(status: int, said: Refusal) -> web.Response:
    answer = _json(said)
    answer.set_status(status)
    if status in (429, 503):
        answer.headers[hdrs.RETRY_AFTER] = _RETRY_AFTER
    return answer
