"""How long producers wait when brokers come, go and die, with two or three of them.

Calls of 20 records follow each other every 10 ms, whether those before were answered or not.
The pause is the longest that one of them took, among those of the change. Brokers expire
after 3 s here: a kill costs the expiration and an era change.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from benchmarks.logs import records
from benchmarks.result import Result, within
from changefeed import open_producer
from changefeed.log.producer import Producer

from .cluster import EXPIRATION, Cluster, open_cluster
from .latency import Call

_AT_ONCE, _EVERY = 20, 0.01
_BEFORE, _AFTER = 1.0, 1.0
_ROUNDS = 3
_PLANNED_GOAL, _KILLED_GOAL = 1.0, EXPIRATION + 1.0


async def measured() -> Sequence[Result]:
    quiet, joins, leaves, kills = [], [], [], []
    async with (
        open_cluster("broker-1", "broker-2") as cluster,
        open_producer(cluster.address) as producer,
    ):
        for _ in range(_ROUNDS):
            quiet.append(await _pause(producer, asyncio.sleep(_BEFORE)))
            joins.append(await _pause(producer, cluster.start("broker-3")))
            leaves.append(await _pause(producer, cluster.stop("broker-3")))
            kills.append(await _pause(producer, _killed(cluster)))
            await cluster.start("broker-2")
    return [
        within("brokers.pause.none", quiet, _PLANNED_GOAL, "s", "nothing happens"),
        within("brokers.pause.joins", joins, _PLANNED_GOAL, "s", "goal"),
        within("brokers.pause.leaves", leaves, _PLANNED_GOAL, "s", "goal"),
        within("brokers.pause.killed", kills, _KILLED_GOAL, "s", "expiration + 1"),
    ]


async def _killed(cluster: Cluster) -> None:
    await cluster.kill("broker-2")
    await asyncio.sleep(EXPIRATION)
    await cluster.settled()


async def _pause(producer: Producer, change: Awaitable[None]) -> float:
    """Return the longest that a call took, from a second before a change to one after."""
    loop = asyncio.get_running_loop()
    calls: list[Call] = []

    async def call(n: int) -> None:
        asked = loop.time()
        await producer.send_many(records(n * _AT_ONCE, _AT_ONCE))
        calls.append(Call(asked, loop.time()))

    async def steadily() -> None:
        async with asyncio.TaskGroup() as group:
            n, began = 0, loop.time()
            while not over.is_set():
                group.create_task(call(n))
                n += 1
                await asyncio.sleep(max(0.0, began + n * _EVERY - loop.time()))

    over = asyncio.Event()
    calling = asyncio.create_task(steadily())
    await asyncio.sleep(_BEFORE)
    await change
    await asyncio.sleep(_AFTER)
    over.set()
    await calling
    return max(x.answered - x.asked for x in calls)
