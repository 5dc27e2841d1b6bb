"""The source of the pipeline beside Azure's client for Java, which is below their connector.

Both read all of a container from its beginning, on the same emulator in a process of its own:
4 ranges, two tasks at once. Ours is what Spark runs: a planner fixes the ends, and two
processes open the feed for each task and make record batches, from pages of 4,000 items.
Theirs is what their connector runs: pages of Jackson's objects, in two threads; in pages of
1,000 as it asks for, and in pages as large as ours. They take turns, after some rounds to
warm up, and a ratio is the median of those of each round. It needs Java and Maven.
"""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from time import perf_counter

from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import first_offset, next_offset, plan_slices
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.spark import read_slices

from .endpoint import DATABASE, endpoint, make_container
from .java_process import ask, java_process
from .result import Result, by_rounds

_ITEMS = 160_000
_RANGES = 4
_TASKS = 2  # at once
_ROUNDS = 9
_WARM_UP = 4
_OUR_PAGE = 10_000
_THEIR_PAGE = 1000
_CONTAINER = "items"


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with endpoint() as url:
        await make_container(url, _CONTAINER, ranges=_RANGES, items=_ITEMS)
        with ProcessPoolExecutor(_TASKS, mp_context=get_context("spawn")) as pool:
            async with java_process(url, "Bulk", DATABASE, str(_TASKS)) as process:
                rounds = [await _round(url, pool, process) for _ in range(_WARM_UP + _ROUNDS)]
    counted, against = rounds[_WARM_UP:], "java_in_our_pages"
    return [
        by_rounds("cosmos-bulk", counted, "java", "changes/s"),
        by_rounds("cosmos-bulk", counted, "java_in_our_pages", "changes/s", against="java"),
        by_rounds("cosmos-bulk", counted, "source", "changes/s", against=against, goal=1.0),
    ]


async def _round(url: str, pool: Executor, process: Process) -> Mapping[str, float]:
    return {
        "source": _ITEMS / await asyncio.to_thread(_by_us, url, pool),
        "java": _ITEMS / await _by_java(process, _THEIR_PAGE),
        "java_in_our_pages": _ITEMS / await _by_java(process, _OUR_PAGE),
    }


def _by_us(url: str, pool: Executor) -> float:
    address = f"cosmos+{url}{DATABASE}/{_CONTAINER}"
    with closing(open_access(address)) as access:  # a planner stays open
        start = first_offset(access, "beginning")
        began = perf_counter()
        slices = plan_slices(access, start, next_offset(access, start), changes=100_000)
        found = sum(pool.map(_task, [address] * len(slices), slices))
        seconds = perf_counter() - began
    assert found == _ITEMS, f"the source found {found} changes"
    return seconds


def _task(address: str, one: Slice) -> int:
    """Do what a task of Spark does, but for handing over its batches."""
    options = Options.of({"feed": address})
    return sum(x.num_rows for x in read_slices(options, [one]))


async def _by_java(process: Process, page: int) -> float:
    found = await ask(process, f"{_CONTAINER} {page}")
    assert found["changes"] == _ITEMS, f"Java found {found['changes']} changes"
    return float(found["seconds"])
