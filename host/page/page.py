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

from changefeed.host.page.answer import JSON, NO_STORE, Answer, json_answer
from changefeed.host.page.files import INDEX, SAFE, page_file
from changefeed.host.page.stream import EventStream
from changefeed.runtime.errors import StoreError
from changefeed.runtime.scrape import accepts_gzip
from changefeed.runtime.web_server import take_time

_MAX_STREAM_SECONDS = 3600.0
_MAX_WRITE_SECONDS = 10.0
_BUSY = 503


class Page:
    """Answers for one ``EventStream``. ``more`` are routes besides: dead letters, actions."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/", self._respond),
            web.get("/page/events", self._events),
            web.get("/page/{name}", self._respond),
        ]

    async def answer(self, path: str, *, packed: bool, known: str = "") -> Answer | None:
        """Answer for a path of the page; ``None`` for one that is none of it. A body is
        ``packed`` for a client that takes it so; ``known`` is the tag of the file that it has.
        """
        if path == "/page/state":
            return await self._state(packed=packed)
        folder, _, name = path.rpartition("/")
        if path == "/" or folder == "/page":
            return _file(INDEX if path == "/" else name, packed=packed, known=known)
        return None

    async def _respond(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name")
        found = await self.answer(
            "/" if name is None else f"/page/{name}",
            packed=accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")),
            known=request.headers.get(hdrs.IF_NONE_MATCH, ""),
        )
        assert found is not None, f"{request.path} is of the page"
        return found.response

    async def _state(self, *, packed: bool) -> Answer:
        try:
            body = await self.stream.whole(compressed=packed)
        except StoreError as error:
            return json_answer({"error": str(error)}, _BUSY)
        return Answer(content_type=JSON, body=body, packed=packed, more=NO_STORE)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        events = self.stream.events(_number(request.query.get("after", "")), _gone(request))
        try:
            first = await anext(events, b"")
        except web.HTTPException as refused:
            return json_answer({"error": refused.text}, refused.status).response
        take_time(request, _MAX_STREAM_SECONDS)
        answer = web.StreamResponse(
            headers={
                **NO_STORE,
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
    async with asyncio.timeout(_MAX_WRITE_SECONDS):
        await answer.write(event)


def _gone(request: web.Request) -> Callable[[], bool]:
    return lambda: request.transport is None or request.transport.is_closing()


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else -1


def _file(name: str, *, packed: bool, known: str) -> Answer:
    """Answer with a file of the page; a browser asks each time whether it is still the same."""
    found = page_file(name)
    if found is None:
        return json_answer({"error": f"the page has no file {name!r}"}, 404)
    headers = {**SAFE, "Cache-Control": "no-cache", "ETag": found.tag}
    if known == found.tag:
        return Answer(status=304, content_type=found.content_type, more=headers)
    return Answer(
        content_type=found.content_type,
        body=found.packed if packed else found.body,
        packed=packed,
        more=headers,
    )
