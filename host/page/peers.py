"""What the members of a fleet answer at ``/leases``, for pages that show them all.

Addresses are those of the member records: a client that may write the lease container may have
them asked. They are asked for one path, with a limit of time and of size, and no redirect is
followed. One that did not answer is left alone for a minute.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from changefeed.host.page.view import Known, PipelineRow

_AT_ONCE = 16
_TIMEOUT = 2.0
_MOST_BYTES = 8_000_000
_EVERY = 5.0
_LEAVE_ALONE = 60.0

Answer = TypeVar("Answer")


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    range: str
    since: float | None = None
    position: str | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None
    checkpoint_at: float | None = None

    @property
    def known(self) -> Known:
        return Known(
            since=self.since,
            position=self.position,
            lag=self.lag,
            late=self.lag_seconds,
            rate=self.rate,
            checkpoint_at=self.checkpoint_at,
        )


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``/leases`` of a host says."""

    host: str
    started_at: float | None = None
    version: str | None = None
    loop_lag: float | None = None
    leases: list[LeaseReport] = []

    @property
    def known(self) -> Mapping[str, Known]:
        return {x.range: x.known for x in self.leases}


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    changes: int = 0
    rate: float | None = None
    lag: int | None = None
    trouble: str | None = None


class Peers:
    """Asks, and remembers the answers; ``opened`` makes it."""

    def __init__(self, session: aiohttp.ClientSession, clock: Callable[[], float]) -> None:
        self._session = session
        self._clock = clock
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._asked_at = float("-inf")
        self._silent: dict[str, float] = {}
        self._hosts: dict[str, HostReport] = {}
        self._tables: dict[str, list[PipelineRow]] = {}

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> "AsyncIterator[Peers]":
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield cls(session, asyncio.get_running_loop().time)

    async def ask(
        self, hosts: Iterable[tuple[str, str]], pipelines: Iterable[str] = ()
    ) -> None:
        """Ask hosts, by name and address, and pipelines, unless the answers are fresh."""
        if self._clock() - self._asked_at < _EVERY:
            return
        self._asked_at = self._clock()
        hosts = [(name, address) for name, address in hosts if address]
        self._tables = {}
        self._hosts = {x: y for x, y in self._hosts.items() if x in dict(hosts)}
        async with asyncio.TaskGroup() as group:
            for name, address in hosts:
                group.create_task(self._ask_host(name, address))
            for address in pipelines:
                group.create_task(self._ask_pipeline(address))

    def host(self, name: str) -> HostReport | None:
        return self._hosts.get(name)

    @property
    def tables(self) -> list[PipelineRow]:
        return [row for _, rows in sorted(self._tables.items()) for row in rows]

    async def _ask_host(self, name: str, address: str) -> None:
        try:
            report = await self._get(address, "/leases", HostReport)
        except _NoAnswer:
            self._hosts.pop(name, None)
            return
        if report.host == name:  # else another program has its port by now
            self._hosts[name] = report

    async def _ask_pipeline(self, address: str) -> None:
        try:
            tables = await self._get(address, "/tables", list[TableReport])
        except _NoAnswer as error:
            text = f"it does not answer: {error}"
            silent = [PipelineRow(address=address, table="", trouble=text)]
            self._tables.setdefault(address, silent)
            return
        self._tables[address] = [
            PipelineRow(address=address, **msgspec.structs.asdict(x)) for x in tables
        ]

    async def _get(self, address: str, path: str, kind: type[Answer]) -> Answer:
        if self._clock() - self._silent.get(address, float("-inf")) < _LEAVE_ALONE:
            raise _NoAnswer("it did not a moment ago")
        try:
            async with (
                self._few,
                self._session.get(address.rstrip("/") + path, allow_redirects=False) as answer,
            ):
                answer.raise_for_status()
                found = msgspec.json.decode(await _body(answer), type=kind)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._silent[address] = self._clock()
            raise _NoAnswer(str(error) or type(error).__name__) from error
        return found


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_chunked(65_536):
        body += piece
        if len(body) > _MOST_BYTES:
            raise ValueError(f"its answer is longer than {_MOST_BYTES:,} bytes")
    return bytes(body)


class _NoAnswer(Exception):
    pass
