"""What hosts and pipelines answer at their endpoints, for those who show or judge a fleet.

Who may write a lease container chooses the addresses in it, so an answer may be anything: it is
given few seconds and few bytes, no redirect is followed, and nothing is decompressed. Each
address is asked for one path of ours, and for nothing else; one that did not answer is left
alone for a minute.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from changefeed.fleet.status import Report
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.errors import Failure
from changefeed.runtime.http_answer import bounded_body

_TIMEOUT = 2.0
_EVERY = 5.0
_LEAVE_ALONE = 60.0
_AT_ONCE = 16
_MAX_BYTES = 8_000_000
_OK = 200

Answer = TypeVar("Answer")


class PipelineTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a pipeline, or a pipeline that does not answer (``trouble``)."""

    table: str
    address: str = ""
    changes: int | None = None
    rate: float | None = None
    lag: int | None = None
    trouble: str | None = None


class Peers:
    """Asks several at once, and remembers the answers; ``opened`` makes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._clock = asyncio.get_running_loop().time
        self._asked_at = float("-inf")
        self._silent: dict[str, float] = {}
        self._reports: Mapping[str, Report] = {}
        self._tables_asked_at = float("-inf")
        self._seen_tables: Sequence[PipelineTable] = ()

    @classmethod
    @asynccontextmanager
    async def opened(cls, *, seconds: float = _TIMEOUT) -> "AsyncIterator[Peers]":
        """``seconds`` is how long one answer may take, from the question to its last byte."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=seconds),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # few bytes may be many
        ) as session:
            yield cls(session)

    async def ask(self, hosts: Mapping[str, str]) -> Mapping[str, Report]:
        """Return what the hosts of these names and addresses say, by name, at most five
        seconds old. Only what a host says of itself counts.
        """
        if self._clock() - self._asked_at >= _EVERY:
            self._asked_at = self._clock()
            found = await gather_or_cancel(*(self._report(*x) for x in hosts.items() if x[1]))
            self._reports = {x.host: x for x in found if x is not None}
        return {x: report for x, report in self._reports.items() if x in hosts}

    async def _report(self, name: str, address: str) -> Report | None:
        try:
            report = await self._unless_silent(address, "/leases", Report)
        except Failure:
            return None
        return report if report.host == name else None  # another program has its port by now

    async def tables(self, pipelines: Collection[str]) -> Sequence[PipelineTable]:
        """Return the tables of pipelines at these addresses, as old as that."""
        if self._clock() - self._tables_asked_at >= _EVERY:
            self._tables_asked_at = self._clock()
            found = await gather_or_cancel(*(self._tables(x) for x in sorted(pipelines)))
            self._seen_tables = [table for tables in found for table in tables]
        return self._seen_tables

    async def _tables(self, address: str) -> Sequence[PipelineTable]:
        try:
            found = await self._unless_silent(address, "/tables", list[PipelineTable])
        except Failure as error:
            text = f"it does not answer: {error}"
            return [PipelineTable(address=address, table="", trouble=text)]
        return [msgspec.structs.replace(x, address=address) for x in found]

    async def _unless_silent(self, address: str, path: str, kind: type[Answer]) -> Answer:
        if self._clock() - self._silent.get(address, float("-inf")) < _LEAVE_ALONE:
            raise Failure("it did not a moment ago")
        try:
            return await self.get(address, path, kind)
        except Failure:
            self._silent[address] = self._clock()
            raise

    async def get(
        self,
        address: str,
        path: str,
        kind: type[Answer],
        *,
        statuses: Collection[int] = (_OK,),
    ) -> Answer:
        """Return the document at a path, if it comes with one of these statuses. Raise
        ``Failure`` for anything else.
        """
        try:
            async with (
                self._few,
                self._session.get(address.rstrip("/") + path, allow_redirects=False) as answer,
            ):
                if answer.status not in statuses:
                    raise Failure(f"it answers {answer.status} {answer.reason}")
                body = await bounded_body(answer, _MAX_BYTES)
                if body is None:
                    raise Failure(f"its answer is longer than {_MAX_BYTES:,} bytes")
                return msgspec.json.decode(body, type=kind)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Failure(str(error) or type(error).__name__) from error
