"""The emulator of Cosmos DB as its command runs: its start, its memory, one client's requests.

The client speaks HTTP itself and has a few requests under way, so that no vendor's client is
measured. The processor time of a request is the emulator's alone.
"""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from emulator.tests.by_hand import DOCS, Hand, hand
from emulator.tests.process import process

from .process_usage import cpu_seconds, megabytes
from .result import Result, at_least, bounded

_ITEMS, _BLOCK, _ROUNDS = 100_000, 4_000, 5
_PAGE = 1_000
_AT_ONCE, _KEYS = 4, 1_000
_STARTS_WITHIN, _MAX_MB, _MAX_MS = 1.0, 250.0, 100.0
_LEAST = {"creates": 1_000.0, "reads": 1_500.0}


def measure() -> Sequence[Result]:
    with TemporaryDirectory(prefix="bench-") as place:
        return asyncio.run(_measured(Path(place)))


async def _measured(place: Path) -> Sequence[Result]:
    started = median([await _start(place) for _ in range(_ROUNDS)])
    found = [bounded("emulator.start", started, "s", _STARTS_WITHIN)]
    async with process(place) as (server, url), hand(url) as client:

        async def create(n: int) -> None:
            key = f"key-{n % _KEYS}"
            item = {"id": f"{n}", "pk": key, "n": n, "pad": "x" * 160}
            made = await client.send("POST", DOCS, item, key=key)
            assert made.status == 201, made

        async def read(n: int) -> None:
            got = await client.send("GET", f"{DOCS}/{n}", key=f"key-{n % _KEYS}")
            assert got.body["n"] == n, got

        blocks = [range(x, x + _BLOCK) for x in range(0, _ITEMS, _BLOCK)]
        found += await _timed("creates", server, [_each(create, x) for x in blocks])
        found.append(bounded("emulator.100,000 items", megabytes(server), "MB", _MAX_MB))
        found += await _timed("reads", server, [_each(read, x) for x in blocks[:_ROUNDS]])
        found += await _timed("pages", server, [lambda: _read_feed(client)] * _ROUNDS)
        for control in ("snapshot", "reset"):
            began = perf_counter()
            await client.control("POST", control)
            found.append(
                bounded(f"emulator.{control}", 1000 * (perf_counter() - began), "ms", _MAX_MS)
            )
    return found


async def _start(place: Path) -> float:
    """Return the seconds from its start to its first answer."""
    began = perf_counter()
    async with process(place) as (_, url), hand(url):
        return perf_counter() - began


async def _timed(
    what: str, server: Process, rounds: Sequence[Callable[[], Awaitable[int]]]
) -> Sequence[Result]:
    rates, costs = [], []
    for work in rounds:
        cpu, began = cpu_seconds(server), perf_counter()
        done = await work()
        rates.append(done / (perf_counter() - began))
        costs.append(1000 * (cpu_seconds(server) - cpu) / done)
    rate, least = median(rates), _LEAST.get(what)
    goal = None if least is None else at_least(rate, least)
    return [
        Result(name=f"emulator.{what}", value=rate, unit="/s", goal=goal),
        Result(name=f"emulator.{what}, processor time of each", value=median(costs), unit="ms"),
    ]


def _each(
    request: Callable[[int], Awaitable[None]], numbers: range
) -> Callable[[], Awaitable[int]]:
    async def run() -> int:
        waiting = iter(numbers)

        async def some() -> None:
            for n in waiting:
                await request(n)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())
        return len(numbers)

    return run


async def _read_feed(client: Hand) -> int:
    """Read the change feed of the one range from its beginning; return how many pages."""
    after, read, pages = None, 0, 0
    while True:
        page = await client.feed(after, x_ms_max_item_count=str(_PAGE))
        if page.status == 304:
            break
        after, read, pages = page.headers["etag"], read + len(page.ids), pages + 1
    assert read == _ITEMS, read
    return pages
