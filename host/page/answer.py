"""One answer over HTTP, for aiohttp's server and for the ASGI server of a program."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import hdrs, web

from changefeed.host.page.files import SAFE

NO_STORE: Mapping[str, str] = {**SAFE, "Cache-Control": "no-store"}
JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``packed`` says that the body is compressed; ``more`` are headers besides."""

    status: int = 200
    content_type: str
    body: bytes = b""
    packed: bool = False
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {**self.more, hdrs.CONTENT_TYPE: self.content_type}
        if self.packed:
            headers |= {hdrs.CONTENT_ENCODING: "gzip", hdrs.VARY: hdrs.ACCEPT_ENCODING}
        return headers

    @property
    def response(self) -> web.Response:
        return web.Response(status=self.status, body=self.body, headers=self.headers)


def json_answer(document: object, status: int = 200) -> Answer:
    return Answer(
        status=status, content_type=JSON, body=msgspec.json.encode(document), more=NO_STORE
    )
