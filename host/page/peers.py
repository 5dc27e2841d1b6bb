"""What the members of a fleet answer at ``/leases``, for pages that show them all.

Addresses are those of the member records (see ``host.member_endpoints``). One that did not
answer is left alone for a minute.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from changefeed.host.member_endpoints import Endpoints, NoAnswer
from changefeed.host.page.view import Known, PipelineRow

_TIMEOUT = 2.0
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

    def __init__(self, endpoints: Endpoints, clock: Callable[[], float]) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._asked_at = float("-inf")
        self._silent: dict[str, float] = {}
        self._hosts: dict[str, HostReport] = {}
        self._tables: dict[str, list[PipelineRow]] = {}

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> "AsyncIterator[Peers]":
        async with Endpoints.opened(seconds=_TIMEOUT) as endpoints:
            yield cls(endpoints, asyncio.get_running_loop().time)

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
        except NoAnswer:
            self._hosts.pop(name, None)
            return
        if report.host == name:  # else another program has its port by now
            self._hosts[name] = report

    async def _ask_pipeline(self, address: str) -> None:
        try:
            tables = await self._get(address, "/tables", list[TableReport])
        except NoAnswer as error:
            text = f"it does not answer: {error}"
            silent = [PipelineRow(address=address, table="", trouble=text)]
            self._tables.setdefault(address, silent)
            return
        self._tables[address] = [
            PipelineRow(address=address, **msgspec.structs.asdict(x)) for x in tables
        ]

    async def _get(self, address: str, path: str, kind: type[Answer]) -> Answer:
        if self._clock() - self._silent.get(address, float("-inf")) < _LEAVE_ALONE:
            raise NoAnswer("it did not a moment ago")
        try:
            return await self._endpoints.get(address, path, kind)
        except NoAnswer:
            self._silent[address] = self._clock()
            raise
