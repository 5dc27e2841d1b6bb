"""The programs of samples/embedding, run as their users would run them."""

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from changefeed import FeedRefused, Operation, open_container, open_producer
from changefeed.feeds.eventlog import EventLog
from changefeed.feeds.eventlog.producer import EventLogProducer
from samples.embedding.producing import produce

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    await produce(str(tmp_path / "prices"))
    return tmp_path / "prices"


@asynccontextmanager
async def program(*arguments: str, **env: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=PIPE,
        stderr=PIPE,
        limit=2**20,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def free_port() -> int:
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])


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
    async with asyncio.timeout(60):
        while True:
            status, found = await get(url)
            if true(status, found):
                return found
            await asyncio.sleep(0.1)


async def answers_of_the_program(process: Process, port: int, *numbers: int) -> bytes:
    """Look at what a program serves that embeds a host, and stop it; return its errors."""
    base = f"http://127.0.0.1:{port}"
    await until(f"{base}/prices/article-99", lambda status, _: status == 200)
    assert await get(f"{base}/prices/tea") == (200, {"article": "tea", "price": 4.0})
    assert (await get(f"{base}/prices/article-7"))[0] == 404
    ready = await until(f"{base}/changefeed/readyz", lambda status, _: status == 200)
    assert ready["problems"] == []
    assert len((await get(f"{base}/changefeed/leases"))[1]["leases"]) == 12
    await until(f"{base}/changefeed/metrics", lambda _, text: "_changes_total" in text)
    assert (await get(f"{base}/changefeed/nothing"))[0] == 404
    assert (await get(f"{base}/changefeed/livez"))[1]["alive"] is True
    for number in numbers:
        process.send_signal(number)
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert b"lease." not in errors  # the program configured no logging for it
    assert b"Traceback" not in errors
    return errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_aiohttp_program_serves_and_stops_the_host_in_it(
    log: Path, number: signal.Signals
) -> None:
    port = free_port()
    arguments = ("-m", "samples.embedding.aiohttp_program", str(log), str(port))
    async with program(*arguments) as process:
        errors = await answers_of_the_program(process, port, number)
        assert process.returncode == 0
        assert errors == b""


async def test_a_fastapi_program_serves_and_stops_the_host_in_it(log: Path) -> None:
    port = free_port()
    app = "samples.embedding.fastapi_program:make_app"
    arguments = ("-m", "uvicorn", "--factory", app, "--port", str(port))
    async with program(*arguments, PRICES_LOG=str(log)) as process:
        errors = await answers_of_the_program(process, port, signal.SIGTERM)
        assert b"Application shutdown complete" in errors


async def test_a_script_reads_all_and_leaves_nothing_behind_at_ctrl_c(log: Path) -> None:
    async with program("-m", "samples.embedding.script", str(log), "anna") as process:
        assert process.stdout is not None
        lines = [await asyncio.wait_for(process.stdout.readline(), 60) for _ in range(103)]
        assert b"anna tea {'price': 4.0}\n" in lines
        process.send_signal(signal.SIGINT)
        printed, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert printed == b""
    assert b"INFO:changefeed:host.started host=anna " in errors
    assert b"INFO:changefeed:host.stopped host=anna" in errors
    assert b"Traceback" not in errors
    async with open_container(f"sqlite:{log}.leases") as leases:
        assert list(await leases.members()) == []
        assert {x.owner for x in await leases.list()} == {None}
    async with program("-m", "samples.embedding.script", str(log), "anna") as process:
        await asyncio.sleep(3)
        process.send_signal(signal.SIGINT)
        assert (await asyncio.wait_for(process.communicate(), 30))[0] == b""  # nothing again


async def everything(log: Path) -> dict[str, list[tuple[Operation, bytes]]]:
    found: dict[str, list[tuple[Operation, bytes]]] = {}
    async with EventLog.open(log) as feed:
        for place in await feed.ranges():
            start = await feed.resolve_start(place.id, "beginning")
            for x in (await feed.read(place.id, start, 10_000)).changes:
                found.setdefault(x.key, []).append((x.operation, x.body))
    return found


async def test_what_python_produced_is_in_the_log_in_the_order_of_its_key(log: Path) -> None:
    found = await everything(log)
    assert len(found) == 101
    assert [x for x, _ in found["tea"]] == [Operation.INSERT, Operation.REPLACE]
    assert found["article-7"][-1] == (Operation.DELETE, b"")


async def test_what_is_sent_at_once_is_written_in_few_transactions(tmp_path: Path) -> None:
    async with open_producer(f"eventlog:{tmp_path / 'log'}", parts=2) as producer:
        assert isinstance(producer, EventLogProducer)
        writes = 0
        append = producer._writer.append

        async def counted(records: Any) -> Any:
            nonlocal writes
            writes += 1
            return await append(records)

        producer._writer.append = counted  # type: ignore[method-assign]
        await asyncio.gather(*(producer.send(f"k{n}", n) for n in range(500)))
    assert writes <= 3
    assert len(await everything(tmp_path / "log")) == 500


async def test_of_changes_sent_at_once_only_the_wrong_one_is_refused(tmp_path: Path) -> None:
    async with open_producer(tmp_path / "log", parts=2) as producer:
        keys = [f"k{n}" for n in range(20)] + ["half a pair \ud800"]
        answers = await asyncio.gather(
            *(producer.send(x, b"1") for x in keys), return_exceptions=True
        )
        assert answers[:-1] == [None] * 20
        assert isinstance(answers[-1], FeedRefused)
        with pytest.raises(FeedRefused, match="cannot be written as JSON"):
            await producer.send("k", object())
    assert len(await everything(tmp_path / "log")) == 20


async def test_leaving_the_block_waits_for_what_was_sent(tmp_path: Path) -> None:
    async with open_producer(tmp_path / "log") as producer:
        sending = [asyncio.create_task(producer.send(f"k{n}", n)) for n in range(50)]
        await asyncio.sleep(0)
    assert all(x.done() and x.exception() is None for x in sending)
    assert len(await everything(tmp_path / "log")) == 50
