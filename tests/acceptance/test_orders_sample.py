"""The sample of orders, as its README tells to run it, over the emulator."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from changefeed.feeds.feed import Change, Operation, RangeId
from cosmos_emulator import DEVELOPMENT_KEY
from samples.orders.produce import orders, produce
from samples.orders.view import with_orders
from tests.support.commands import QUICK, running
from tests.support.emulator_process import control, emulator_process
from tests.support.processes import PATIENCE, Running

ROOT = Path(__file__).parents[2]


def expected(count: int) -> dict[str, dict[str, str]]:
    """Return the status of each order of each customer after so many orders."""
    found: dict[str, dict[str, str]] = {}
    for x in orders(count):
        found.setdefault(x["customer"], {})[x["id"]] = x["status"]
    return found


async def viewed(client: CosmosClient) -> dict[str, dict[str, str]]:
    """Return the same out of the view."""
    view = client.get_database_client("shop").get_container_client("customers")
    try:
        items = [dict(x) async for x in view.query_items("SELECT * FROM c")]
    except CosmosResourceNotFoundError:
        return {}
    return {x["id"]: {k: v["status"] for k, v in x["orders"].items()} for x in items}


def host(name: str, url: str, cwd: Path) -> Any:
    return running(
        "run",
        f"--name={name}",
        f"--feed=cosmos+{url}shop/orders",
        f"--leases=cosmos+{url}shop/leases",
        "--set=leases.create=true",
        "--observer=samples.orders.view:CustomerView",
        f"--option=view=cosmos+{url}shop/customers",
        *QUICK,
        "--set=feed.page_size=50",
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT)},
    )


async def test_the_view_is_that_of_the_orders_also_when_ranges_split_and_a_host_is_killed(
    tmp_path: Path,
) -> None:
    async with emulator_process(tmp_path, "--split-at-items=60") as (_, url):
        feed = f"cosmos+{url}shop/orders"
        await produce(feed, 0)  # the container is there before its readers
        async with (
            host("h0", url, tmp_path) as killed,
            host("h1", url, tmp_path) as other,
            CosmosClient(url, DEVELOPMENT_KEY) as client,
        ):
            producing = asyncio.create_task(produce(feed, 300, pause=0.003))
            await _either_says("lease.acquired", killed, other)
            await asyncio.sleep(1)
            killed.process.kill()
            await producing
            async with asyncio.timeout(PATIENCE):
                while await viewed(client) != expected(300):  # noqa: ASYNC110 - polls a server
                    await asyncio.sleep(0.2)
            other.process.send_signal(signal.SIGTERM)
            assert await other.ends() == 0, other.said
        shown = await control(url, "GET", "")
        (found,) = [x for x in shown if x["container"] == "orders"]
        assert len(found["ranges"]) > 1


async def _either_says(text: str, *hosts: Running) -> None:
    await hosts[0].reaches(lambda: any(text in x.said for x in hosts))


def test_to_handle_an_order_again_changes_nothing() -> None:
    def change(n: int, status: str, cents: int = 700) -> Change:
        body = f'{{"cents": {cents}, "status": "{status}"}}'.encode()
        return Change(
            range_id=RangeId("0"),
            sequence=n,
            key="c",
            id=f"order-{n}",
            operation=Operation.REPLACE,
            body=body,
            committed_us=0,
        )

    once = with_orders({"id": "c"}, [change(1, "new"), change(2, "shipped", 50)])
    assert (once["total_cents"], once["waiting"]) == (750, 1)
    assert with_orders(once, [change(1, "new"), change(2, "shipped", 50)]) == once
    paid = with_orders(once, [change(1, "shipped")])
    assert (paid["total_cents"], paid["waiting"]) == (750, 0)
