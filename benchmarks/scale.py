"""A large fleet: ten thousand ranges on one host, the plan of 500 hosts, many hosts at once,
and more parallel than the feed has ranges (``parallel``).

The host is a process of its own over an event log and leases in SQLite, with the default
settings. Its processor time and its memory are those that
the system counts (Linux only), so they are right on a busy machine too; seconds are not. What
it asks of its lease container is counted in virtual time.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

from changefeed.feeds.cosmos.address import EMULATOR_KEY
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.addresses import open_container
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.load_plan import plan_by_load
from changefeed.log.catalog import transitions
from changefeed.log.directory import directory as directory_of_log
from changefeed.log.directory.directory import create_log

from . import parallel
from .fleets import WatchedFleet, in_virtual_time
from .process_usage import cpu_seconds, megabytes
from .result import Result, bounded

_RANGES = 10_000
_COUNTED = 1_000  # calls at rest do not depend on it
_STARTS_WITHIN, _STOPS_WITHIN = 30.0, 30.0
_AT_REST = 30.0
_SETTLES = 20.0
_PATIENCE = 900.0
_MAX_CORES, _MAX_MB, _MAX_CALLS, _MAX_PLAN_MS = 0.5, 400.0, 20.0, 50.0
_PLAN_HOSTS, _PLANS = 500, 5
_FILE_HOSTS, _FILE_LEASES = 64, 256
_VIRTUAL_HOSTS, _VIRTUAL_LEASES = 300, 900
_ROOT = Path(__file__).parents[1]


def measure() -> Sequence[Result]:
    return [
        *asyncio.run(_one_host()),
        *in_virtual_time(_calls_at_rest),
        _plan(),
        *asyncio.run(_on_one_file()),
        *in_virtual_time(_many_hosts),
        *parallel.measure(),
    ]


async def idle(changes: object) -> None:
    """The observer of ranges that nothing is appended to."""


# one host


async def _one_host() -> Sequence[Result]:
    with TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        with ExitStack() as more_parts:  # than a log has; ranges cost the same
            for module in (directory_of_log, transitions):
                more_parts.enter_context(patch.object(module, "MAX_PARTS", _RANGES))
            await create_log(place / "log", _RANGES)
        began = time.monotonic()
        process = await run_host(
            place / "log.txt",
            *(f"--feed=eventlog:{place}/log", f"--leases=sqlite:{place}/leases.db"),
            "--observer=benchmarks.scale:idle",
        )
        try:
            await _until_owned(place / "leases.db", process)
            started = time.monotonic() - began
            spent = cpu_seconds(process)
            await asyncio.sleep(_SETTLES)
            before, at = cpu_seconds(process), time.monotonic()
            await asyncio.sleep(_AT_REST)
            cores = (cpu_seconds(process) - before) / (time.monotonic() - at)
            memory = megabytes(process)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            await process.wait()
            stopped = time.monotonic() - began
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        left = _owned(place / "leases.db")
    return [
        bounded("scale.one_host.cores_at_rest", cores, "of a core", _MAX_CORES),
        bounded("scale.one_host.memory", memory, "MB", _MAX_MB),
        bounded("scale.one_host.start", started, "s", _STARTS_WITHIN),
        Result(name="scale.one_host.start_cpu", value=spent, unit="s of a core"),
        bounded("scale.one_host.stop", stopped, "s", _STOPS_WITHIN),
        bounded("scale.one_host.left_to_expire", left, "leases", 0.0),
    ]


async def run_host(said: Path, *arguments: str) -> Process:
    """Start a host; what it says goes to a file."""
    ours = {x: v for x, v in os.environ.items() if not x.startswith("CHANGEFEED_")}
    with said.open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "changefeed", "run", "--name=bench", *arguments),
            "--set=web.port=off",
            f"--set=host.stop_timeout={_STOPS_WITHIN:g}",
            cwd=_ROOT,
            env=ours | {"CHANGEFEED_COSMOS__KEY": EMULATOR_KEY},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=log,
        )


async def _until_owned(leases: Path, process: Process) -> None:
    async with asyncio.timeout(_PATIENCE):
        while _owned(leases) < _RANGES:
            assert process.returncode is None, "the host has ended"
            await asyncio.sleep(0.5)


def _owned(leases: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{leases}?mode=ro", uri=True)) as plain:
            rows = plain.execute("SELECT count(*) FROM leases WHERE owner IS NOT NULL")
            return int(rows.fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not there yet


async def _calls_at_rest() -> Sequence[Result]:
    minutes = 5
    async with WatchedFleet(_COUNTED) as fleet:
        fleet.start_watched("h0")
        await fleet.until_even(_COUNTED)
        await asyncio.sleep(60.0)
        calls = fleet.watched["h0"].calls
        before = calls.total()
        await asyncio.sleep(60.0 * minutes)
        each = (calls.total() - before) / minutes
    return [bounded("scale.one_host.calls_at_rest", each, "calls/min", _MAX_CALLS)]


# the plan


def _plan() -> Result:
    """One host joins 499 others that are even: all but the work is done already."""
    random = Random(1)
    hosts = [HostName(f"h{n}") for n in range(_PLAN_HOSTS)]
    leases = [
        Lease(
            range=FeedRange(id=RangeId(f"r{n}")),
            owner=hosts[n % (_PLAN_HOSTS - 1)],
            incarnation=Incarnation("1"),
            epoch=1,
            load=round(random.random() ** 3 * 20) / 20,
            checkpoint=Checkpoint.of_text("0"),
        )
        for n in range(_RANGES)
    ]
    limits = dict.fromkeys(hosts)
    took: list[float] = []
    for _ in range(_PLANS):
        began = time.process_time()
        plan_by_load(leases, limits)
        took.append(time.process_time() - began)
    return bounded("scale.plan_by_load", min(took) * 1000, "ms", _MAX_PLAN_MS)


# many hosts


async def _on_one_file() -> Sequence[Result]:
    """Start 64 hosts over one SQLite file, each with a connection of its own, on one loop."""
    async with AsyncExitStack() as opened:
        place = opened.enter_context(TemporaryDirectory(prefix="bench-"))

        async def client() -> LeaseContainer:
            address = f"sqlite:{place}/leases.db"
            return await opened.enter_async_context(open_container(address))

        fleet = WatchedFleet(_FILE_LEASES, await client())
        await opened.enter_async_context(fleet)
        began = time.monotonic()
        for n in range(_FILE_HOSTS):
            fleet.start_with(f"h{n:02}", await client())
        async with asyncio.timeout(_PATIENCE):
            await fleet.until_even(_FILE_LEASES)
        seconds = time.monotonic() - began
        await asyncio.sleep(_SETTLES)
        calls, failures = _asked(fleet)
        spent = time.process_time()
        await asyncio.sleep(_AT_REST)
        cores = (time.process_time() - spent) / _AT_REST
        more, lost = _asked(fleet)
        each = (more - calls) / _FILE_HOSTS / _AT_REST * 60.0
        await fleet.stop_all()
        left = await fleet.left_to_expire()
    place = f"{_FILE_HOSTS}_hosts_on_one_file"
    return [
        Result(name=f"scale.{place}.even", value=seconds, unit="s"),
        Result(name=f"scale.{place}.cores_at_rest", value=cores, unit="cores, all hosts"),
        bounded(f"scale.{place}.calls_at_rest", each, "calls/host/min", _MAX_CALLS),
        bounded(f"scale.{place}.failures", lost - failures, "calls without an answer", 0.0),
        bounded(f"scale.{place}.left_to_expire", left, "leases", 0.0),
    ]


async def _many_hosts() -> Sequence[Result]:
    """Start 300 hosts at once in memory and in virtual time; see how long until all is even."""
    clock = asyncio.get_running_loop().time
    async with WatchedFleet(_VIRTUAL_LEASES) as fleet:
        fleet.start_watched(*(f"h{n:03}" for n in range(_VIRTUAL_HOSTS)))
        await fleet.until_even(_VIRTUAL_LEASES)
        seconds = clock()
        moves = fleet.acquisitions - _VIRTUAL_LEASES
        await asyncio.sleep(20.0)
        before, _ = _asked(fleet)
        began = time.process_time()
        await asyncio.sleep(60.0)
        spent = (time.process_time() - began) / 60.0
        after, _ = _asked(fleet)
    place = f"{_VIRTUAL_HOSTS}_hosts"
    each = (after - before) / _VIRTUAL_HOSTS
    return [
        Result(name=f"scale.{place}.even", value=seconds, unit="virtual s"),
        Result(name=f"scale.{place}.cores_at_rest", value=spent, unit="cores, all hosts"),
        Result(name=f"scale.{place}.moves", value=moves, unit="leases acquired twice"),
        bounded(f"scale.{place}.calls_at_rest", each, "calls/host/min", _MAX_CALLS),
    ]


def _asked(fleet: WatchedFleet) -> tuple[int, int]:
    """Return how many calls all hosts have made, and how many writes got no answer."""
    watched = fleet.watched.values()
    return sum(x.calls.total() for x in watched), sum(x.failures for x in watched)
