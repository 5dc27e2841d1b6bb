"""A broker over HTTP: what ``feeds.brokers.client`` asks, and what people and probes do.

    GET  /livez  /readyz  /metrics                       open to all who reach the address
    GET  /v1/status                                      the cluster as this broker sees it
    GET  /v1/collections/C                               the topology
    POST /v1/collections/C/records                       append batches
    GET  /v1/collections/C/partitions/P/records          read, and wait for a first record
    GET  /v1/collections/C/partitions/P/end              the last sequence, and what is gone
    GET  /v1/collections/C/partitions/P/since            the sequence before a time
    PUT  /v1/collections/C                               create, with {"parts": 12}
    POST /v1/collections/C/split  merge  retain          change it
    POST /v1/collections/C/compact                       compact what is in this broker's care

Whatever is refused is a ``Refusal`` in JSON with a 4xx, and has changed nothing. With a token
set, all of /v1 needs it.
"""

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from aiohttp import hdrs, web

from changefeed.brokers import operations
from changefeed.brokers.core import BrokerCore
from changefeed.brokers.meters import BrokerMeters
from changefeed.feeds.brokers.errors import (
    BatchRefused,
    ClusterRefused,
    CollectionUnknown,
    PositionGone,
)
from changefeed.feeds.brokers.parquet import segments_module
from changefeed.feeds.brokers.stores.store import StoreError, StoreUnavailable
from changefeed.feeds.brokers.wire import (
    CONTENT_TYPE,
    MOST_BYTES,
    Compaction,
    End,
    Refusal,
    Since,
    WireDamaged,
    framed_read,
    parsed_append,
)
from changefeed.feeds.errors import (
    FeedRefused,
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.eventlog.create import DEFAULT_PARTS
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.scrape import Scrape, accepts_gzip
from changefeed.runtime.web_server import WebLimits

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LIMITS = WebLimits(most=4096, request=30.0, answer=75.0, idle=120.0, shutdown=2.0)
"""A reader may wait 30 seconds for a record, a producer for a slow store."""
_LONGEST_WAIT = 30.0
_MOST_PAGE = 64 * 1024 * 1024
_RETRY_AFTER = "1"

_log = get_logger()

_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (CollectionUnknown, 404, "unknown-collection"),
    (RangeUnknown, 404, "unknown-partition"),
    (PositionGone, 410, "gone"),
    (RangeDamaged, 422, "damaged"),
    (RangeRefused, 416, "beyond"),
    (BatchRefused, 400, "bad-batch"),
    (WireDamaged, 400, "bad-body"),
    (ClusterRefused, 409, "cluster"),
    (FeedUnavailable, 503, "unavailable"),
    (StoreUnavailable, 503, "store"),
    (StoreError, 503, "store"),
    (FeedRefused, 400, "refused"),
    (UserError, 400, "refused"),
)
"""What an error of ours is over HTTP: the first that fits."""


class Refused(Exception):
    """The request cannot be answered, and it is the client's fault."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(status, error, message)
        self.status = status
        self.refusal = Refusal(error=error, message=message)


class BrokerServer:
    """The handlers of one broker. ``problems`` says why it is not ready, if it is not."""

    def __init__(
        self,
        core: BrokerCore,
        meters: BrokerMeters,
        scrape: Scrape,
        *,
        token: str | None,
        problems: Callable[[], list[str]],
    ) -> None:
        self._core = core
        self._meters = meters
        self._scrape = scrape
        self._token = None if token is None else token.encode()
        self._problems = problems
        self._running: set[asyncio.Task[bool]] = set()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[self._bordered])
        one = "/v1/collections/{collection}"
        of = f"{one}/partitions/{{partition}}"
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/status", self._status),
                web.get(one, self._topology),
                web.put(one, self._create),
                web.post(f"{one}/records", self._append),
                web.post(f"{one}/split", self._split),
                web.post(f"{one}/merge", self._merge),
                web.post(f"{one}/retain", self._retain),
                web.post(f"{one}/compact", self._compact),
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
            return await handler(request)
        except Refused as refused:
            return _refusal(refused.status, refused.refusal)
        except web.HTTPException as refused:
            text = refused.text or refused.reason
            return _refusal(refused.status, Refusal(error="http", message=text))
        except (
            FeedRefused,
            FeedUnavailable,
            RangeUnknown,
            StoreError,
            UserError,
            WireDamaged,
        ) as e:
            for kind, status, name in _STATUS:
                if isinstance(e, kind):
                    return _refusal(status, Refusal(error=name, message=str(e)))
            raise
        except Exception:  # noqa: BLE001 - the border to clients
            _log.exception("broker.request_failed", path=request.path)
            failed = Refusal(error="bug", message="the broker failed; its log says how")
            return _refusal(500, failed)

    def _check_token(self, request: web.Request) -> None:
        if self._token is None:
            return
        given = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, b"Bearer " + self._token):
            raise Refused(
                401,
                "token",
                "a token is needed, and this is not it: set "
                "CHANGEFEED_BACKENDS__BROKERS__TOKEN to that of the brokers",
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

    # For producers and readers.

    async def _topology(self, request: web.Request) -> web.Response:
        at_least = _number(request.query, "at_least", 0)
        if self._core.catalog.number < at_least:
            await self._core.catalogs.refresh()
        self._core.check_sight()
        collection = _collection(request)
        await self._identity(collection)
        return _json(self._core.topology(collection))

    async def _append(self, request: web.Request) -> web.Response:
        if request.content_type != CONTENT_TYPE:
            raise Refused(
                415,
                "content-type",
                f"records come as {CONTENT_TYPE}, not {request.content_type}",
            )
        collection = await self._checked(request)
        began = asyncio.get_running_loop().time()
        batches = parsed_append(await request.read())
        if not batches:
            raise Refused(400, "bad-body", "there is no batch in the request")
        answers = await self._core.append(collection, batches)
        elapsed = asyncio.get_running_loop().time() - began
        self._meters.appended(collection, batches, answers, elapsed)
        return _json(answers)

    async def _read(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        query = request.query
        result = await self._core.read(
            collection,
            _partition(request),
            _number(query, "after", 0),
            max_bytes=min(_number(query, "bytes", 1024 * 1024), _MOST_PAGE),
            wait=min(_seconds(query, "wait"), _LONGEST_WAIT),
        )
        self._meters.read(collection, result)
        return web.Response(
            body=b"".join(framed_read(result)), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE}
        )

    async def _end(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        partition = _partition(request)
        last = await self._core.end(collection, partition)
        info = self._core.index.collection(collection).partition(partition)
        return _json(End(start=info.start, last=last))

    async def _since(self, request: web.Request) -> web.Response:
        collection = await self._checked(request)
        time_us = _number(request.query, "time_us", None, least=-(2**63))
        partition = _partition(request)
        found = await self._core.sequence_before(collection, partition, time_us)
        if found is None:
            found = await self._core.end(collection, partition)
        return _json(Since(sequence=found))

    async def _checked(self, request: web.Request) -> str:
        """Return the collection, if it is the one that the client means."""
        collection, log = _collection(request), request.query.get("log")
        if log is not None and log != await self._identity(collection):
            raise Refused(
                409,
                "foreign",
                f"collection {collection!r} is another one than the client knows: it was "
                f"deleted and created again, or this is a broker of another cluster",
            )
        return collection

    async def _identity(self, collection: str) -> str:
        """Return the identity of a collection, which may be newer than our catalog.

        Asked with each append and read: so it looks at no partition.
        """
        try:
            return self._core.identity(collection)
        except CollectionUnknown:
            await self._core.catalogs.refresh()
        return self._core.identity(collection)

    # For what changes the cluster.

    async def _create(self, request: web.Request) -> web.Response:
        asked = await _body(request, _NewCollection)
        name = _collection(request)
        await operations.create_collection(self._core.catalogs, name, parts=asked.parts)
        return await self._topology(request)

    async def _split(self, request: web.Request) -> web.Response:
        asked = await _body(request, _OneRange)
        await operations.split(self._core.catalogs, _collection(request), asked.partition)
        return await self._topology(request)

    async def _merge(self, request: web.Request) -> web.Response:
        asked = await _body(request, _OneRange)
        await operations.merge(self._core.catalogs, _collection(request), asked.partition)
        return await self._topology(request)

    async def _retain(self, request: web.Request) -> web.Response:
        asked, name = await _body(request, _Retention), _collection(request)
        await operations.retain(
            self._core.catalogs, name, seconds=asked.seconds, bytes_=asked.bytes
        )
        return await self._topology(request)

    async def _compact(self, request: web.Request) -> web.Response:
        """Compact all that can be, for a while; what is not done by then goes on."""
        await self._identity(_collection(request))
        segments_module()
        before = replace(self._core.compactor.done)
        running = asyncio.create_task(self._core.compactor.step(everything=True))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait([running], timeout=_LONGEST_WAIT)
        now = self._core.compactor.done
        return _json(
            Compaction(
                broker=self._core.name,
                ended=bool(done),
                objects=now.objects - before.objects,
                segments=now.segments - before.segments,
                records=now.records - before.records,
                bytes=now.bytes - before.bytes,
                failed=now.failures - before.failures,
            )
        )


class _NewCollection(msgspec.Struct, forbid_unknown_fields=True):
    parts: int = DEFAULT_PARTS


class _OneRange(msgspec.Struct, forbid_unknown_fields=True):
    partition: RangeId | None = None


class _Retention(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float | None = None
    bytes: int | None = None


def _json(value: object) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), content_type="application/json", charset="utf-8"
    )


def _refusal(status: int, said: Refusal) -> web.Response:
    answer = _json(said)
    answer.set_status(status)
    if status == web.HTTPServiceUnavailable.status_code:
        answer.headers[hdrs.RETRY_AFTER] = _RETRY_AFTER
    return answer


async def _body(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(400, "bad-body", f"the body cannot be read: {error}") from error


def _collection(request: web.Request) -> str:
    return request.match_info["collection"]


def _partition(request: web.Request) -> RangeId:
    return RangeId(request.match_info["partition"])


def _number(query: Mapping[str, str], name: str, default: int | None, *, least: int = 0) -> int:
    text = query.get(name)
    if text is None and default is not None:
        return default
    number: int | None = _parsed(text or "", int)
    if number is None or not least <= number < 2**63:
        raise Refused(
            400, "bad-query", f"{name} is a whole number of {least} or more, not {text!r}"
        )
    return number


def _seconds(query: Mapping[str, str], name: str) -> float:
    text = query.get(name, "0")
    seconds: float | None = _parsed(text, float)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise Refused(400, "bad-query", f"{name} is a number of seconds, not {text!r}")
    return seconds


def _parsed(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None
