"""The routes of the page, for aiohttp: its files, what it shows, what comes anew.

    /             the page
    /page/NAME    its files
    /page/state   what it shows, whole, as JSON
    /page/events  what has changed since, as server-sent events

A reader of events that does not read for ten seconds is cut off. So is everyone after an
hour, and comes back by himself.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import hdrs, web

from changefeed.host.page.access import Refused
from changefeed.host.page.files import INDEX, SAFE, page_file
from changefeed.host.page.stream import EventStream
from changefeed.runtime.errors import StoreError
from changefeed.runtime.scrape import accepts_gzip
from changefeed.runtime.web_server import take_time

_NO_STORE = {"Cache-Control": "no-store"}
_JSON = "application/json; charset=utf-8"
_LONGEST = 3600.0
_SLOW = 10.0
_BUSY = 503


class Page:
    """Answers for one ``EventStream``. ``more`` are routes besides: dead letters, actions."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/", self._index),
            web.get("/page/state", self._state),
            web.get("/page/events", self._events),
            web.get("/page/{name}", self._file),
        ]

    async def _index(self, request: web.Request) -> web.Response:
        return file_answer(request, INDEX)

    async def _file(self, request: web.Request) -> web.Response:
        return file_answer(request, request.match_info["name"])

    async def _state(self, request: web.Request) -> web.Response:
        packed = wants_gzip(request)
        try:
            body = await self.stream.whole(compressed=packed)
        except StoreError as error:
            return json_answer({"error": str(error)}, _BUSY)
        headers = {**SAFE, **_NO_STORE, "Content-Type": _JSON, "Vary": "Accept-Encoding"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        events = self.stream.events(_number(request.query.get("after", "")), _gone(request))
        try:
            first = await anext(events, b"")
        except Refused as refused:
            return json_answer({"error": str(refused)}, refused.status)
        take_time(request, _LONGEST)
        answer = web.StreamResponse(
            headers={
                **SAFE,
                **_NO_STORE,
                "Content-Type": "text/event-stream",
                "X-Accel-Buffering": "no",
            }
        )
        try:
            await answer.prepare(request)
            await _send(answer, first, events)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            await events.aclose()
        return answer


async def _send(answer: web.StreamResponse, first: bytes, events: AsyncIterator[bytes]) -> None:
    await _write(answer, first)
    async for event in events:
        await _write(answer, event)


async def _write(answer: web.StreamResponse, event: bytes) -> None:
    async with asyncio.timeout(_SLOW):
        await answer.write(event)


def _gone(request: web.Request) -> Callable[[], bool]:
    return lambda: request.transport is None or request.transport.is_closing()


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else -1


def wants_gzip(request: web.Request) -> bool:
    return accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, ""))


def file_answer(request: web.Request, name: str) -> web.Response:
    """Answer with a file of the page; a browser asks each time whether it is still the same."""
    found = page_file(name)
    if found is None:
        return json_answer({"error": f"the page has no file {name!r}"}, 404)
    headers = {
        **SAFE,
        "Cache-Control": "no-cache",
        "ETag": found.tag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get(hdrs.IF_NONE_MATCH) == found.tag:
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = found.content_type
    if wants_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=found.packed, headers=headers)
    return web.Response(body=found.body, headers=headers)


def json_answer(document: object, status: int = 200) -> web.Response:
    return web.json_response(document, status=status, headers={**SAFE, **_NO_STORE})
