"""A steady load on brokers, as a process: ``python -m benchmarks.brokers.load ADDRESS RATE``.

It hands over so many records a second, whether earlier ones were answered or not, until its
standard input ends. Then it says how many seconds each call took, as JSON.
"""

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.logs import records
from changefeed import open_producer

_AT_ONCE = 100


async def load(address: str, rate: float) -> Sequence[float]:
    """Return how many seconds the calls took."""
    seconds = list[float]()
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)

    async def call(n: int) -> None:
        batch = records(n * _AT_ONCE, _AT_ONCE)
        began = loop.time()
        await producer.send_many(batch)
        seconds.append(loop.time() - began)

    async with open_producer(address) as producer, asyncio.TaskGroup() as group:
        began, n = loop.time(), 0
        while not ended.done():
            await asyncio.sleep(max(0.0, began + n * _AT_ONCE / rate - loop.time()))
            group.create_task(call(n))
            n += 1
    return seconds


if __name__ == "__main__":
    found = asyncio.run(load(sys.argv[1], float(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(found))
