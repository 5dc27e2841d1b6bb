"""How long a producer waits for an answer, at half of what one broker takes.

Another process loads the broker at a fixed rate; here one record after the other is sent and
waited for, so that no call waits for another one of its own. What a call took beside the put
of its object is the broker's, HTTP's and the clients' share. The load's own
calls wait also for the request before theirs, as a producer has one under way with a broker.
All of it waits for a core now and then: so much as a thread that only sleeps is late.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, sleep

import msgspec

from benchmarks.logs import records
from benchmarks.result import Result, at_most
from changefeed import ProducerOptions, open_producer

from .cluster import open_cluster
from .latency import Call, Put, beyond, percentile
from .rates import append

_BEFORE = 200_000
_SECONDS, _WARMING = 15.0, 2.0
_GOAL = 5.0
_NAP = 0.005
_TIMED = "benchmarks.brokers.timed_broker"
_ROOT = Path(__file__).parents[2]


async def measured() -> Sequence[Result]:
    async with open_cluster("broker-1", module=_TIMED) as cluster:
        batches = [records(n, 1_000) for n in range(0, _BEFORE, 1_000)]
        rate = _BEFORE / await append(cluster.address, batches) / 2
        async with _loading(cluster.address, rate) as load:
            await asyncio.sleep(_WARMING)
            waking = asyncio.create_task(asyncio.to_thread(_late, _SECONDS))
            calls = await probe(cluster.address, _SECONDS)
            late = await waking
        loaded = await load
        puts = [Put(*x) for x in cluster.puts()]
    shares = [1e3 * x for x in beyond(calls, puts)]
    last = [x for x in puts if x.ended >= calls[0].asked]
    return [
        Result(name="brokers.half load", value=rate, unit="records/s"),
        *_percentiles("answered", [x.answered - x.asked for x in calls]),
        *_percentiles("put", [x.ended - x.began for x in last]),
        _beyond(shares, 50),
        _beyond(shares, 99, goal=_GOAL),
        *_percentiles("answered, the load's own calls", loaded),
        *_percentiles("a timer is late by", late),
    ]


def _percentiles(what: str, seconds: Sequence[float]) -> Sequence[Result]:
    return [
        Result(name=f"brokers.{what}.p{n}", value=1e3 * percentile(seconds, n), unit="ms")
        for n in (50, 99)
    ]


def _beyond(shares: Sequence[float], percent: int, goal: float | None = None) -> Result:
    value = percentile(shares, percent)
    return Result(
        name=f"brokers.answered beyond the put.p{percent}",
        value=value,
        unit="ms",
        goal=None if goal is None else at_most(value, goal),
    )


async def probe(address: str, seconds: float, *, apart: float = 0.005) -> Sequence[Call]:
    """Send one record after the other; return the calls."""
    calls: list[Call] = []
    async with open_producer(address, options=ProducerOptions()) as producer:
        await producer.send_many(records(0, 1))  # connects
        end = monotonic() + seconds
        while (asked := monotonic()) < end:
            await producer.send_many(records(len(calls), 1))
            calls.append(Call(asked, monotonic()))
            await asyncio.sleep(apart)
    return calls


def _late(seconds: float) -> Sequence[float]:
    """Return how late a thread is woken that does nothing: what the machine itself adds."""
    found, end = [], monotonic() + seconds
    while (asleep := monotonic()) < end:
        sleep(_NAP)
        found.append(monotonic() - asleep - _NAP)
    return found


@asynccontextmanager
async def _loading(address: str, rate: float) -> AsyncIterator["asyncio.Task[Sequence[float]]"]:
    """Load a broker from a process of its own meanwhile; its calls' seconds come after it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.brokers.load", address, str(rate)),
        cwd=_ROOT,
        stdin=PIPE,
        stdout=PIPE,
    )
    reading = asyncio.create_task(_said(process))
    try:
        yield reading
    finally:
        if process.stdin is not None:
            process.stdin.close()  # it ends
        await reading


async def _said(process: asyncio.subprocess.Process) -> Sequence[float]:
    assert process.stdout is not None
    said = await process.stdout.read()
    assert await process.wait() == 0, "the load failed"
    return msgspec.json.decode(said, type=list[float])
