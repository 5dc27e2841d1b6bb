"""Producing from Python: ``python -m samples.embedding.producing data/prices``."""

import asyncio
import sys

from changefeed import Operation, open_producer


async def produce(log: str) -> None:
    async with open_producer(log) as producer:
        await producer.send("tea", {"price": 3.5})  # durable when it returns
        async with asyncio.TaskGroup() as group:  # what is sent at once shares a transaction
            for n in range(100):
                group.create_task(producer.send(f"article-{n}", {"price": n}))
        await producer.send("tea", {"price": 4.0}, operation=Operation.REPLACE)
        await producer.send("article-7", operation=Operation.DELETE)


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1]))
