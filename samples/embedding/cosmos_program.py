"""A processor over containers that a program has opened itself, with azure-cosmos.

    ACCOUNT=https://… ACCOUNT_KEY=… python -m samples.embedding.cosmos_program

Run it several times, with another ``NAME`` each: they share the ranges of ``shop/orders``.
"""

import asyncio
import os
from collections.abc import Sequence

from azure.cosmos.aio import CosmosClient

from changefeed import Change, ChangeFeedProcessor


async def on_changes(changes: Sequence[Change]) -> None:
    for change in changes:
        print(f"order {change.value()['id']}", flush=True)


async def main() -> None:
    async with CosmosClient(os.environ["ACCOUNT"], os.environ["ACCOUNT_KEY"]) as client:
        shop = client.get_database_client("shop")
        processor = ChangeFeedProcessor(
            shop.get_container_client("orders"),
            shop.get_container_client("leases"),
            on_changes,
            processor_name="orders-to-search",
            instance_name=os.environ.get("NAME"),
        )
        async with processor:
            print("running", flush=True)
            await processor.wait()


if __name__ == "__main__":
    asyncio.run(main())
