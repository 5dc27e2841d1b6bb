"""Processes that balance by load: what each has to do where keys are as Zipf has them.

A host does one batch after the other, as with one core. It waits instead of computing, so that
other programs of the machine stay out of the figures.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import accumulate
from pathlib import Path
from random import Random

from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from tests.support.commands import PLACES, running

HOSTS, RANGES, KEYS = 4, 16, 2_000
RATE = 440
"""Changes in a second: 0.55 of what the hosts can do. Of these, an eighth has the first key."""
SETTLED, WATCHED = 120, 30
EVERY = 0.1
OBSERVER = """
import asyncio

one_core = asyncio.Lock()


async def work(context, changes):
    async with one_core:
        await asyncio.sleep(0.005 * len(changes))
    with open(f"{context.host}.done", "a") as done:
        print(len(changes), file=done)
"""


@asynccontextmanager
async def writing(log: Path) -> AsyncIterator[None]:
    random, keys = Random(1), [f"key-{n}" for n in range(KEYS)]
    weights = list(accumulate(1 / (rank + 1) for rank in range(KEYS)))

    async def write() -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        async with EventLogWriter.open(log) as writer:
            while True:
                drawn = random.choices(keys, cum_weights=weights, k=round(RATE * EVERY))
                await writer.send_many([Record(key=x, body=b"{}") for x in drawn])
                at += EVERY
                await asyncio.sleep(at - loop.time())

    task = asyncio.create_task(write())
    try:
        yield
        assert not task.done(), "nothing was written any more"
    finally:
        task.cancel()
        await asyncio.wait([task])


def done(place: Path) -> Counter[str]:
    """Return how many changes each host has done."""
    return Counter({x.stem: sum(map(int, x.read_text().split())) for x in place.glob("*.done")})


async def test_two_minutes_on_no_host_has_much_more_to_do_than_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(OBSERVER)
    await create_log(tmp_path / "log", RANGES)
    async with writing(tmp_path / "log"), AsyncExitStack() as hosts:
        for n in range(HOSTS):
            await hosts.enter_async_context(
                running(
                    *("run", *PLACES, f"--name=h{n}", "--observer=mine:work"),
                    "--set=leases.balance=load",
                    cwd=tmp_path,
                )
            )
        await asyncio.sleep(SETTLED)
        before = done(tmp_path)
        await asyncio.sleep(WATCHED)
        work = done(tmp_path)
    work.subtract(before)
    assert len(work) == HOSTS
    assert max(work.values()) <= 1.3 * work.total() / HOSTS, work
    assert work.total() > 0.8 * RATE * WATCHED, "they do not keep up"
