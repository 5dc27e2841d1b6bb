"""The programs of samples/embedding, run as their users would run them."""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from changefeed import open_container, open_producer
from samples.embedding.producing import produce
from tests.support.ports import free_port
from tests.support.processes import PATIENCE, Running, started

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    await produce(str(tmp_path / "prices"))
    return tmp_path / "prices"


def program(*arguments: str, cwd: Path, **env: str) -> AbstractAsyncContextManager[Running]:
    path = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return started(sys.executable, *arguments, cwd=cwd, env={**os.environ, **path, **env})


async def get(url: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()
        except URLError:
            return 0, b""

    status, body = await asyncio.to_thread(ask)
    return status, json.loads(body) if body.startswith(b"{") else body.decode()


async def until(url: str, true: Callable[[int, Any], bool]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            status, found = await get(url)
            if true(status, found):
                return found
            await asyncio.sleep(0.1)


async def answers(process: Running, port: int) -> None:
    """Look at what a program serves that embeds a host."""
    base = f"http://127.0.0.1:{port}"
    await until(f"{base}/prices/article-99", lambda status, _: status == 200)
    tea = (200, {"article": "tea", "price": 4.0})  # of another range
    await until(f"{base}/prices/tea", lambda *found: found == tea)
    assert (await get(f"{base}/prices/article-7"))[0] == 404
    await until(f"{base}/changefeed/readyz", lambda *x: x[0] == 200 and not x[1]["problems"])
    assert len((await get(f"{base}/changefeed/leases"))[1]["ranges"]) == 12
    await until(f"{base}/changefeed/metrics", lambda _, text: "_changes_total" in text)
    assert (await get(f"{base}/changefeed/nothing"))[0] == 404
    assert (await get(f"{base}/changefeed/livez"))[1]["alive"] is True
    assert "lease." not in process.said  # the program configured no logging for it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_aiohttp_program_serves_and_stops_the_host_in_it(
    log: Path, number: signal.Signals
) -> None:
    port = free_port()
    arguments = ("-m", "samples.embedding.aiohttp_program", str(log), str(port))
    async with program(*arguments, cwd=log.parent) as process:
        await answers(process, port)
        await process.stops(number)
    assert process.said == ""


async def test_a_fastapi_program_serves_and_stops_the_host_in_it(log: Path) -> None:
    port = free_port()
    app = "samples.embedding.fastapi_program:make_app"
    arguments = ("-m", "uvicorn", "--factory", app, "--port", str(port))
    async with program(*arguments, cwd=log.parent, PRICES_LOG=str(log)) as process:
        await answers(process, port)
        process.process.send_signal(signal.SIGTERM)
        await process.ends()
    assert "Application shutdown complete" in process.said
    assert "Traceback" not in process.said


async def test_a_script_reads_all_and_leaves_nothing_behind_at_ctrl_c(log: Path) -> None:
    script = ("-m", "samples.embedding.script", str(log), "anna")
    async with program(*script, cwd=log.parent) as process:
        await process.prints("\n", times=103)
        assert "anna tea {'price': 4.0}\n" in process.printed
        await process.stops(signal.SIGINT)
    assert "INFO:changefeed:host.started host=anna " in process.said
    assert "INFO:changefeed:host.stopped host=anna" in process.said
    assert "Traceback" not in process.said
    async with open_container(f"sqlite:{log}.leases") as leases:
        assert list(await leases.members()) == []
        assert {x.owner for x in await leases.list()} == {None}
    keys = [f"key-{n}" for n in range(100)]  # some in each range
    async with open_producer(log) as producer:
        await asyncio.gather(*(producer.send(x, 1) for x in keys))
    async with program(*script, cwd=log.parent) as process:
        await process.prints("\n", times=len(keys))
        await process.stops(signal.SIGINT)
        lines = process.printed.splitlines()
    assert sorted(lines) == sorted(f"anna {x} 1" for x in keys), "nothing comes again"
