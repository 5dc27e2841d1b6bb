"""What clients ask of a broker, out of their requests: bodies, paths and queries."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.decoding import Undecodable, from_json
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.protocol.wire import MAX_BYTES

T = TypeVar("T")


class CollectionRequest(msgspec.Struct, forbid_unknown_fields=True):
    parts: int = DEFAULT_PARTS


class RangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    partition: RangeId | None = None


class RetentionRequest(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float | None = None
    bytes: int | None = None


def size_of(request: web.Request) -> int:
    """Return the size of a request's body. Refuse one that does not say it."""
    if not request.body_exists:
        return 0
    if request.content_length is None:
        raise web.HTTPLengthRequired(text="a body comes with its Content-Length, not in chunks")
    if request.content_length > MAX_BYTES:
        raise web.HTTPRequestEntityTooLarge(
            MAX_BYTES,
            request.content_length,
            text=f"a body has {MAX_BYTES:,} bytes at most: send fewer at once",
        )
    return request.content_length


async def read_body(request: web.Request) -> bytearray:
    """Return the body of a request, of which no copy is kept besides.

    Refuse one that is longer than it said, as what was compressed is.
    """
    body, at = bytearray(size_of(request)), 0
    async for chunk in request.content.iter_any():
        if at + len(chunk) > len(body):
            raise FeedRefused(f"the body is longer than {len(body):,} bytes")
        body[at : at + len(chunk)] = chunk
        at += len(chunk)
    return body


async def body_of(request: web.Request, kind: type[T]) -> T:
    """Return the body of a request, which may be empty. Raise ``Undecodable``."""
    try:
        return from_json(await read_body(request) or b"{}", kind)
    except Undecodable as error:
        raise Undecodable(f"the body cannot be read: {error}") from error


def collection_of(request: web.Request) -> str:
    return request.match_info["collection"]


def partition_of(request: web.Request) -> RangeId:
    return RangeId(request.match_info["partition"])


def number_in(
    query: Mapping[str, str], name: str, default: int | None, *, least: int = 0
) -> int:
    """Return a whole number of a query. Refuse other text, and none without a default."""
    text = query.get(name)
    if text is None and default is not None:
        return default
    number: int | None = _parsed(text or "", int)
    if number is None or not least <= number < 2**63:
        raise FeedRefused(f"{name} is a whole number of {least} or more, not {text!r}")
    return number


def seconds_in(query: Mapping[str, str], name: str) -> float:
    """Return a number of seconds of a query, 0 if it is missing. Refuse other text."""
    text = query.get(name, "0")
    seconds: float | None = _parsed(text, float)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise FeedRefused(f"{name} is a number of seconds, not {text!r}")
    return seconds


def _parsed(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None
