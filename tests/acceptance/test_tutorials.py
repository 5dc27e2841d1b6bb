"""The tutorials, followed line by line."""

import ast
import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import asyncpg
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.log.hashing import DEFAULT_PARTS, place_of
from cosmos_emulator import DEVELOPMENT_KEY
from tests.support import servers
from tests.support.commands import PLACES, QUICK, changefeed, running
from tests.support.dotnet_processor import DotNetHost
from tests.support.emulator_process import control, emulator_process, free_port
from tests.support.processes import until
from tests.support.tutorial import ROOT, Tutorial

T = TypeVar("T")


def test_the_first_observer_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = Tutorial("docs/getting-started.md", tmp_path)
    page.type("changefeed produce")
    with page.left_running("changefeed run") as printed:
        until(lambda: len(printed()) >= 5)
        page.type("changefeed status")
    assert printed() == page.printed[0]
    page.type("echo")
    with page.left_running("changefeed run") as printed:
        until(printed)
    assert printed() == page.printed[1]
    page.type("changefeed config")
    page.type("changefeed doctor")
    assert page.lines == []


def test_the_readme_greets_from_two_hosts(tmp_path: Path) -> None:
    page = Tutorial("README.md", tmp_path)
    page.type("echo")
    page.type("echo")
    page.type("changefeed produce")
    with page.left_running("changefeed run --processes=2") as printed:
        until(lambda: len(printed()) >= 2)
        page.type("changefeed status")
    names = sorted(re.findall(r"hello, (\w+)", "".join(printed())))
    assert names == ["Ada", "Leonhard"]
    halves = {place_of(x, DEFAULT_PARTS)[0] < DEFAULT_PARTS // 2 for x in names}
    assert halves == {True, False}, "each of two hosts has a half of the ranges"
    assert page.lines[0].startswith("changefeed pipeline run --once")


def test_cosmos_in_15_minutes_reads_each_order_once_through_a_split(tmp_path: Path) -> None:
    port = free_port()
    page = Tutorial("docs/cosmos.md#In 15 minutes", tmp_path, {"8081": str(port)})
    with page.left_running("changefeed emulator"):
        until(lambda: answers(port))
        page.type("python write.py 0 50")
        with page.left_running("changefeed run") as printed:
            until(lambda: len(printed()) >= 50)
            page.type("changefeed doctor")
            page.type("curl")
            page.type("python write.py 50 100")
            until(lambda: len(printed()) >= 100)
            page.type("changefeed status")
    orders = [re.findall(r"order-\d+", x)[0] for x in printed()]
    assert sorted(orders) == sorted(f"order-{n}" for n in range(100))
    assert len({x.split(":")[0] for x in printed()}) == 3, "the range, and its two children"
    assert page.lines == []


def answers(port: int) -> bool:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/_emulator")) as answer:
            return isinstance(json.load(answer), list)
    except OSError:
        return False


async def test_from_dotnet_or_java_nothing_is_read_again(tmp_path: Path) -> None:
    async with emulator_process(tmp_path) as (_, url):
        there = {"cosmos://ACCOUNT.documents.azure.com/": f"cosmos+{url}", "PREFIX": "p"}
        page = Tutorial(
            "docs/coming-from.md#Take over a fleet of .NET or Java", tmp_path, there
        )
        await a_fleet_that_has_read_two_of_three(url)
        await in_thread(lambda: page.type("changefeed doctor"))
        await in_thread(lambda: only_the_third_comes(page))
        assert '"2"' in await in_thread(lambda: page.type("changefeed positions import"))
        await in_thread(lambda: page.type("changefeed positions import"))
    assert page.lines == []


async def in_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


async def ranges_of(url: str, name: str) -> list[dict[str, Any]]:
    """Return the living ranges of a container as partition key ranges."""
    (found,) = [x for x in await control(url, "GET", "") if x["container"] == name]
    return [
        {"id": x["id"], "minInclusive": x["low"], "maxExclusive": x["high"]}
        for x in found["ranges"]
        if not x["gone"]
    ]


async def a_fleet_that_has_read_two_of_three(url: str) -> None:
    """Write three orders; leave leases of .NET and an older fleet's behind the second."""
    async with CosmosClient(url, DEVELOPMENT_KEY) as client:
        shop = await client.create_database("shop")
        orders = await shop.create_container("orders", PartitionKey("/id"))
        for n in (1, 2):
            await orders.create_item({"id": f"order-{n}"})
        position = ""
        async for item in orders.query_items_change_feed(start_time="Beginning"):
            position = f'"{item["_lsn"]}"'
        await orders.create_item({"id": "order-3"})
        database, container = await shop.read(), await orders.read()
        name = f"billing127.0.0.1_{database['_rid']}_{container['_rid']}"
        for leases, prefix in (("leases", name), ("javaleases", "p")):
            theirs = await shop.create_container(leases, PartitionKey("/id"), default_ttl=-1)
            host = DotNetHost(theirs, prefix, "net-1")
            ranges = await ranges_of(url, "orders")
            await host.initialize(ranges)
            lease = await host.acquire(await host.read(ranges[0]["id"]))
            await host.release(await host.checkpoint(lease, position))
        await shop.create_container("newleases", PartitionKey("/id"), default_ttl=-1)


def only_the_third_comes(page: Tutorial) -> None:
    with page.left_running("changefeed run") as printed:
        until(printed)
        time.sleep(1)
    assert printed() == ["range 0: order-3"]


def test_tables_on_spark_say_what_the_page_shows(tmp_path: Path) -> None:
    page = Tutorial("docs/pipeline.md#Tables in ten minutes", tmp_path)
    page.type("changefeed produce")
    page.type("changefeed pipeline run --once", timeout=240)
    assert sorted(page.type("python look.py").splitlines()) == page.printed[0]
    page.type("echo")
    page.type("changefeed pipeline run --once", timeout=240)
    after = page.type("python look.py").splitlines()
    assert {"o3 paid", "new 3 1950", "paid 3 1950"} <= set(after)
    assert page.lines == []


def test_the_page_of_operations_acts_on_ranges_and_moves_positions(tmp_path: Path) -> None:
    start = Tutorial("docs/getting-started.md", tmp_path)
    start.type("changefeed produce")
    with start.left_running("changefeed run") as printed:
        until(lambda: len(printed()) >= 5)
    ranges = json.loads(changefeed("status", "--json", cwd=tmp_path).stdout)["ranges"]
    position = next(x["position"] for x in ranges if x["range"] == "e1.p02.v00-ff")
    there = {"e1.p03": "e1.p02", "27296216/1500": position, "reset ": "reset --yes "}
    page = Tutorial("docs/operations.md#Act on ranges", tmp_path, there)
    for command in ("pause", "pause --all", "resume", "pause --force", "resume"):
        page.type(f"changefeed {command}")
    for to in ("beginning", "2026-01-31", position):
        assert f"--to={to}" in page.lines[0]
        page.type("changefeed reset --yes")
    assert page.lines == []
    page = Tutorial("docs/operations.md#Save and move positions", tmp_path)
    for command in ("export", "import before.json --dry-run", "import"):
        page.type(f"changefeed positions {command}")
    assert page.lines == []


def program_of(page: str) -> str:
    """Return the first program of a page in Python."""
    text = (ROOT / page).read_text()
    program: str = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    return program


async def test_the_program_of_exactly_once_books_what_is_written(tmp_path: Path) -> None:
    url = servers.postgres().url
    program = program_of("docs/exactly-once.md").replace("postgresql://me@host/shop", url)
    (tmp_path / "shop.py").write_text(program)
    client = await asyncpg.connect(url)
    await client.execute("drop table if exists bookings, changefeed_positions")
    await client.execute("create table bookings (account text, cents integer)")
    lines = "".join(f'{{"k": "ada", "cents": {n}}}\n' for n in range(3))
    made = changefeed("produce", "log", "-", "--key=k", cwd=tmp_path, stdin=lines)
    assert made.returncode == 0, made.stderr
    async with running("run", *PLACES, *QUICK, "--observer=shop:book", cwd=tmp_path):
        async with asyncio.timeout(60):
            while await client.fetchval("select count(*) from bookings") < 3:  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)
    booked = await client.fetch("select account, cents from bookings order by cents")
    assert [tuple(x) for x in booked] == [("ada", 0), ("ada", 1), ("ada", 2)]
    await client.close()


async def test_the_program_of_the_page_of_processors_prints_what_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = program_of("docs/embedding.md")
    code = compile(program, "embedding.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with emulator_process(tmp_path) as (_, url):
        async with CosmosClient(url, DEVELOPMENT_KEY) as client:
            shop = await client.create_database("shop")
            orders = await shop.create_container("orders", PartitionKey("/id"))
            await shop.create_container("leases", PartitionKey("/id"), default_ttl=-1)
            await orders.create_item({"id": "order-1"})
        running = asyncio.create_task(eval(code, {"url": url, "credential": DEVELOPMENT_KEY}))
        async with asyncio.timeout(60):
            while "order-1\n" not in capsys.readouterr().out:
                assert not running.done(), running.result()
                await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait({running})
