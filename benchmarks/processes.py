"""Real host processes over one event log and the same leases, to be stopped and killed.

Times are a tenth of what fleets have by default, so that a failover takes seconds.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import TracebackType
from typing import Self

from changefeed.feeds.feed import RangeId
from changefeed.leases.timing import Timing
from changefeed.log.directory.writer import EventLogWriter
from tests.support.lease_place import LeasePlace

from .deliveries import Delivery, read_deliveries
from .logs import make_log, records

EXPIRATION, PAGE = 3.0, 100
BALANCE_INTERVAL = Timing.of(EXPIRATION).balance_interval
_SETTINGS = {
    "leases.expiration": EXPIRATION,
    "feed.poll_interval": 0.02,
    "feed.page_size": PAGE,
    "observer.max_unacknowledged": PAGE,
    "web.port": "off",
    "log.format": "json",
}
_ROOT = Path(__file__).parents[1]
_PATIENCE = 40.0
_EVERY = 0.02


class Hosts:
    """Starts, stops and kills hosts in a directory. Leaving the block kills what is left."""

    def __init__(
        self,
        place: Path,
        *,
        seconds: float = 0.0,
        leases: LeasePlace | None = None,
    ) -> None:
        self.place = place
        self._options = {"directory": place} | ({"seconds": seconds} if seconds else {})
        self._leases = leases or LeasePlace(addresses=[f"sqlite:{place / 'leases.db'}"])
        self._running: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        with (self.place / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "changefeed", "run", "--stop-at-eof"),
                *(f"--name={name}", f"--feed=eventlog:{self.place / 'log'}"),
                *self._leases.flags,
                "--observer=benchmarks.deliveries:Recorder",
                *(f"--option={key}={value}" for key, value in self._options.items()),
                *(f"--set={key}={value}" for key, value in _SETTINGS.items()),
                cwd=_ROOT,
                env=_environment() | self._leases.environment,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=log,
            )

    async def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
        assert code == 0, f"{name} ended with {code}: {self._said(name)}"

    async def kill(self, name: str) -> float:
        """Kill it, and return the moment of that."""
        process = self._running.pop(name)
        killed = monotonic()
        process.kill()
        await process.wait()
        return killed

    async def owned(self) -> dict[str, set[RangeId]]:
        """Return what each running host owns."""
        async with self._leases.open() as leases:
            owned = {name: set[RangeId]() for name in self._running}
            for lease in await leases.list():
                if lease.owner in owned and lease.incarnation is not None:
                    owned[lease.owner].add(lease.range_id)
        return owned

    async def until_even(self, ranges: int) -> dict[str, set[RangeId]]:
        """Wait until all ranges are owned, and no two hosts differ by more than one."""
        owned: dict[str, set[RangeId]] = {}

        async def even() -> bool:
            nonlocal owned
            owned = await self.owned()
            loads = [len(x) for x in owned.values()]
            return sum(loads) == ranges and max(loads) - min(loads) <= 1

        await until(even, self)
        return owned

    def check(self) -> None:
        for name, process in self._running.items():
            assert process.returncode is None, f"{name} has ended: {self._said(name)}"

    def deliveries(self) -> "list[Delivery]":
        return list(read_deliveries(self.place))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._running.values():
            await process.wait()

    def _said(self, name: str) -> str:
        return "\n".join((self.place / f"{name}.log").read_text().splitlines()[-5:])


async def until(reached: "Callable[[], object]", hosts: Hosts) -> None:
    """Ask again and again, for as long as no host ends by itself."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            hosts.check()
            answer = reached()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.05)


def _environment() -> dict[str, str]:
    return {x: v for x, v in os.environ.items() if not x.startswith("CHANGEFEED_")}


@asynccontextmanager
async def hosts_over(
    *,
    ranges: int,
    changes: int = 0,
    seconds: float = 0.0,
    leases: LeasePlace | None = None,
) -> AsyncIterator[Hosts]:
    """Make a place with a log of so many changes, and yield hosts that have yet to start."""
    with TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        await make_log(place / "log", parts=ranges, changes=changes)
        async with Hosts(place, seconds=seconds, leases=leases) as hosts:
            yield hosts


@asynccontextmanager
async def producing(place: Path, rate: int) -> AsyncIterator[None]:
    """Append so many changes a second while the block runs, a few at a time."""
    each = round(rate * _EVERY)

    async def produce() -> None:
        loop, number = asyncio.get_running_loop(), 0
        next_at = loop.time()
        async with EventLogWriter.open(place / "log") as writer:
            while True:
                await writer.send_many(records(number, each))
                number += each
                next_at += _EVERY
                await asyncio.sleep(max(0.0, next_at - loop.time()))

    producer = asyncio.create_task(produce())
    try:
        yield
    finally:
        producer.cancel()
        await asyncio.wait([producer])
