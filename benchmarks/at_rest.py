"""What ranges cost while nothing comes, and how soon a host has its first change.

Each host is a process of its own with the default settings: over an event log and leases in
SQLite, and over Cosmos DB, an emulator with as many physical ranges and leases beside them. Its
processor time is what the system counts (Linux only), so it is right on a busy machine too;
seconds are not.
"""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from azure.cosmos import PartitionKey

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container
from changefeed.log.directory.directory import create_log

from .endpoint import DATABASE, client_of, endpoint, make_container
from .logs import make_log
from .process_usage import cpu_seconds
from .result import Result, at_most, bounded
from .scale import run_host

_RANGES: Final = 1_000
_MAX_CORES: Final = {"log": 0.03, "cosmos": 0.25}
_SETTLES, _AT_REST = 60.0, 60.0
_PATIENCE: Final = 300.0
_ROUNDS, _FIRST_WITHIN = 9, 0.5


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    return [await _log(), await _cosmos(), await _first_change()]


async def _log() -> Result:
    with TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        await create_log(place / "log", _RANGES)
        return await _at_rest(
            "log", place, f"eventlog:{place}/log", f"sqlite:{place}/leases.db"
        )


async def _cosmos() -> Result:
    with TemporaryDirectory(prefix="bench-") as directory:
        async with endpoint() as url:
            await make_container(url, "feed", ranges=_RANGES, items=0)
            async with client_of(url) as client:
                database = client.get_database_client(DATABASE)
                await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
            feed, leases = (f"cosmos+{url}{DATABASE}/{x}" for x in ("feed", "leases"))
            return await _at_rest("cosmos", Path(directory), feed, leases)


async def _at_rest(name: str, place: Path, feed: str, leases: str) -> Result:
    arguments = (f"--feed={feed}", f"--leases={leases}", "--observer=benchmarks.scale:idle")
    async with _host(place, *arguments) as process:
        async with asyncio.timeout(_PATIENCE), open_container(leases, OpenOptions()) as held:
            while sum(x.owner is not None for x in await held.list()) < _RANGES:
                assert process.returncode is None, "the host has ended"
                await asyncio.sleep(2.0)
        await asyncio.sleep(_SETTLES)
        before, at = cpu_seconds(process), monotonic()
        await asyncio.sleep(_AT_REST)
        cores = (cpu_seconds(process) - before) / (monotonic() - at)
    return bounded(f"at-rest.{name}.{_RANGES}", cores, "of a core", _MAX_CORES[name])


async def _first_change() -> Result:
    seconds = median([await _until_first_change() for _ in range(_ROUNDS)])
    goal = at_most(seconds, _FIRST_WITHIN)
    return Result(name="at-rest.first_change", value=seconds, unit="s from exec", goal=goal)


async def _until_first_change() -> float:
    with TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        await make_log(place / "log", parts=1, changes=1)
        began = monotonic()
        async with _host(
            place,
            *(f"--feed=eventlog:{place}/log", f"--leases=sqlite:{place}/leases.db"),
            *("--observer=benchmarks.first_change:First", f"--option=path={place}/first"),
        ):
            async with asyncio.timeout(_PATIENCE):
                while not (place / "first").exists():  # noqa: ASYNC110 - files have no event
                    await asyncio.sleep(0.005)
            return monotonic() - began


@asynccontextmanager
async def _host(place: Path, *arguments: str) -> AsyncIterator[Process]:
    process = await run_host(place / "log.txt", *arguments)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()
