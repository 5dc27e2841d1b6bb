"""What a scrape of one host with 1,000 ranges costs, and how long it holds up the event loop.

Over HTTP, from a process of its own kind: a thread that asks as Prometheus does. How late
the loop is meanwhile is measured by a task that wants to run each millisecond.
"""

import asyncio
import gc
import gzip
import time
import urllib.request
from collections.abc import Awaitable, Sequence
from statistics import median
from typing import TypeVar

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.endpoints import HostEndpoints, application
from changefeed.host.events import HostEvents, Lag
from changefeed.host.settings import WebSettings
from changefeed.host.web import listening_socket, url_of
from changefeed.leases.lease import HostName
from changefeed.runtime.telemetry import own_metrics
from changefeed.runtime.web_server import WebLimits, serving

from .result import Result, at_most, bounded

T = TypeVar("T")
_RANGES = 1_000
_SCRAPES = 20
_MAX_LATE_MS, _MAX_BYTES = 50.0, 500_000


def measure() -> Sequence[Result]:
    with own_metrics("changefeed", "bench") as (meters, registry):
        events = HostEvents(HostName("bench"), meters.get_meter("changefeed"))
        for n in range(_RANGES):
            _use(events, RangeId(f"e1.p{n % 12:02d}.v{n:03x}-ff"))
        return asyncio.run(_measure(HostEndpoints("bench", registry, {})))


def _use(events: HostEvents, range_id: RangeId) -> None:
    """Let a range have all that it can have in good order."""
    events.lag(range_id, Lag(12_345, 67.8))
    for _ in range(10):
        events.batch(range_id, 1_000, 0.02)
        events.checkpointed(range_id, Position("1"))


async def _measure(answers: HostEndpoints) -> Sequence[Result]:
    gc.collect()
    gc.freeze()  # as a host's own process does when it has started
    took: list[float] = []
    longest: list[float] = []
    with listening_socket(WebSettings()) as listening:
        async with serving(application(answers), WebLimits(), listening):
            url = f"{url_of(listening)}/metrics"
            idle, _ = await _longest_while(asyncio.sleep(1.0))
            for _ in range(_SCRAPES):
                began = time.perf_counter()
                late, body = await _longest_while(asyncio.to_thread(_fetch, url))
                longest.append(late)
                took.append(time.perf_counter() - began)
    size = len(gzip.decompress(body))
    usual = median(longest) * 1e3
    return [
        Result(
            name="scrape.loop_held_up",
            value=usual,
            unit="ms",
            against=f"worst {max(longest) * 1e3:.0f}, without a scrape {idle * 1e3:.0f}",
            goal=at_most(usual, _MAX_LATE_MS),
        ),
        bounded("scrape.size", size, "bytes", _MAX_BYTES),
        Result(name="scrape.size_compressed", value=len(body), unit="bytes"),
        Result(name="scrape.time", value=median(took) * 1e3, unit="ms"),
    ]


def _fetch(url: str) -> bytes:
    asked = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as answer:
        body: bytes = answer.read()
        return body


async def _longest_while(work: Awaitable[T]) -> tuple[float, T]:
    """Await ``work``; return how late the loop was at most meanwhile, and what came back."""
    late = [0.0]
    watching = asyncio.create_task(_watch(late))
    try:
        answer = await work
    finally:
        watching.cancel()
    return max(late), answer


async def _watch(late: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - began - 0.001)
