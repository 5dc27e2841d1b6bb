"""Asking the endpoints at addresses that stand in records and settings.

Who may write a lease container chooses the addresses in it, so an answer may be anything: it is
given few seconds and few bytes, no redirect is followed, and nothing is decompressed. Each
address is asked for one path of ours, and for nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

_AT_ONCE = 16
_MOST_BYTES = 8_000_000
_OK = 200

Answer = TypeVar("Answer")


class NoAnswer(Exception):
    """The address gave no answer of ours; the text says what came instead."""


class Endpoints:
    """Asks several at once; ``opened`` makes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._few = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def opened(cls, *, seconds: float) -> "AsyncIterator[Endpoints]":
        """``seconds`` is how long one answer may take, from the question to its last byte."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=seconds),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # few bytes may be many
        ) as session:
            yield cls(session)

    async def get(
        self,
        address: str,
        path: str,
        kind: type[Answer],
        *,
        statuses: Collection[int] = (_OK,),
    ) -> Answer:
        """Return the document at a path, if it comes with one of these statuses. Raise
        ``NoAnswer`` for anything else.
        """
        try:
            async with (
                self._few,
                self._session.get(address.rstrip("/") + path, allow_redirects=False) as answer,
            ):
                if answer.status not in statuses:
                    raise NoAnswer(f"it answers {answer.status} {answer.reason}")
                return msgspec.json.decode(await _body(answer), type=kind)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_chunked(65_536):
        body += piece
        if len(body) > _MOST_BYTES:
            raise ValueError(f"its answer is longer than {_MOST_BYTES:,} bytes")
    return bytes(body)
