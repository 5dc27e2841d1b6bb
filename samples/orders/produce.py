"""Writes orders, and changes some of them again: ``python -m samples.orders.produce``.

Each customer orders a few times, and most orders are paid and shipped later: every step
replaces the order's item. The same seed writes the same orders.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Annotated, Any

import typer

from .places import opened

Order = dict[str, Any]
STEPS = ("new", "paid", "shipped")


def orders(count: int, *, seed: int = 1) -> Iterator[Order]:
    """Yield the states of ``count`` orders in the order in which they are written."""
    chance = Random(seed)  # noqa: S311 - makes a sample, guards nothing
    open_orders: list[Order] = []
    for n in range(count):
        customer = f"customer-{chance.randrange(max(1, count // 5)):04}"
        cents = chance.randrange(100, 50_000)
        open_orders.append({"id": f"order-{n:06}", "customer": customer, "cents": cents})
        yield open_orders[-1] | {"status": STEPS[0]}
        if chance.random() < 0.8:
            order = open_orders.pop(chance.randrange(len(open_orders)))
            yield order | {"status": STEPS[1]}
            yield order | {"status": STEPS[2]}


async def produce(address: str, count: int, *, seed: int = 1, pause: float = 0.0) -> int:
    """Write orders; return how many writes that were."""
    writes = 0
    async with opened(address, "/customer") as container:
        for order in orders(count, seed=seed):
            await container.upsert_item(order)
            writes += 1
            await asyncio.sleep(pause)
    return writes


def _main(
    address: Annotated[str, typer.Argument(help="cosmos+http://127.0.0.1:8081/shop/orders")],
    count: int = 500,
    seed: int = 1,
    pause: Annotated[float, typer.Option(help="Seconds between two writes.")] = 0.0,
) -> None:
    writes = asyncio.run(produce(address, count, seed=seed, pause=pause))
    print(f"{count} orders in {writes} writes")


if __name__ == "__main__":
    typer.run(_main)
