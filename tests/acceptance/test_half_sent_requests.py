"""A thousand half-sent requests against every port we listen at, in processes of 256 files."""

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import grpc
import pytest

from changefeed.leases.addresses import open_container
from tests.support.commands import PLACES, QUICK, a_log_of, changefeed, running
from tests.support.emulator_process import control, emulator_process, free_port
from tests.support.processes import Running, started

pytestmark = pytest.mark.real_time
T = TypeVar("T")
_FILES = 256
_STRANGERS = 1000
_HALF = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "
_HALF_OF_GRPC = b"PRI * HTTP/2.0"
_PIPELINE = """
import sys, time
from prometheus_client import CollectorRegistry
from changefeed.pipeline.progress import Board
from changefeed.pipeline.web import listening
with listening("127.0.0.1", 0, Board(), CollectorRegistry()) as address:
    print(address, flush=True)
    for line in sys.stdin:
        print(len([open("/dev/null") for _ in range(100)]), flush=True)
"""


@asynccontextmanager
async def with_few_files(starts: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Start a process that may have few files open; this one may have many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))
    async with AsyncExitStack() as stack:
        try:
            process = await stack.enter_async_context(starts)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * _STRANGERS), hard))
        yield process


@asynccontextmanager
async def strangers(port: int, half: bytes = _HALF) -> AsyncIterator[None]:
    """Hold half a request open in each of many connections, as far as the server lets them."""
    held = []
    try:
        for _ in range(_STRANGERS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            held.append(writer)
        yield
    finally:
        for writer in held:
            writer.transport.abort()


async def asked(url: str) -> tuple[int, Any]:
    limit = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
        return answer.status, await answer.text()


def files_of(process: Running) -> int:
    return len([*Path(f"/proc/{process.process.pid}/fd").iterdir()])


async def test_a_host_reads_on_and_answers_probes(tmp_path: Path) -> None:
    a_log_of(10, tmp_path)
    port = free_port()
    arguments = ("run", *PLACES, *QUICK, "--observer=jsonl", "--option=path=seen.jsonl")
    seen = tmp_path / "seen.jsonl"

    def count() -> int:
        return len(seen.read_text().splitlines()) if seen.exists() else 0

    starts = running(*arguments, f"--set=web.port={port}", cwd=tmp_path)
    async with with_few_files(starts) as host:
        await host.reaches(lambda: count() == 10)
        async with strangers(port):
            assert (await asked(f"http://127.0.0.1:{port}/livez"))[0] == 200
            assert files_of(host) < _FILES / 2
            line = json.dumps({"k": "later"}) + "\n"
            made = await asyncio.to_thread(
                changefeed, "produce", "log", "-", "--key=k", cwd=tmp_path, stdin=line
            )
            assert made.returncode == 0, made.stderr
            await host.reaches(lambda: count() == 11)
            assert (await asked(f"http://127.0.0.1:{port}/readyz"))[0] == 200
        assert host.process.returncode is None


async def test_the_emulator_answers_its_clients(tmp_path: Path) -> None:
    async with with_few_files(emulator_process(tmp_path)) as (process, url):
        async with strangers(int(url.rstrip("/").rpartition(":")[2])):
            assert await control(url, "GET", "") is not None
            assert files_of(process) < _FILES / 2
        assert process.process.returncode is None


async def test_an_exporter_answers_prometheus_and_keda(tmp_path: Path) -> None:
    a_log_of(10, tmp_path)
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}"):
        pass  # makes the file, as a host that left has
    web, scaler = free_port(), free_port()
    ports = (f"--set=web.port={web}", f"--scaler-port={scaler}")
    async with with_few_files(running("exporter", *PLACES, *ports, cwd=tmp_path)) as exporter:
        await exporter.says('"event": "scaler.listening"')
        for exhausted, half in ((web, _HALF), (scaler, _HALF_OF_GRPC)):
            async with strangers(exhausted, half):
                assert (await asked(f"http://127.0.0.1:{web}/metrics"))[0] == 200
                assert files_of(exporter) < _FILES / 2
        async with grpc.aio.insecure_channel(f"127.0.0.1:{scaler}") as channel:
            active = channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
            await active(b"", timeout=10, wait_for_ready=True)


async def test_a_pipeline_answers_probes_and_can_open_files(tmp_path: Path) -> None:
    program = started(sys.executable, "-c", _PIPELINE, cwd=tmp_path)
    async with with_few_files(program) as pipeline:
        await pipeline.prints("http")
        url = pipeline.printed.strip()
        async with strangers(int(url.rpartition(":")[2])):
            assert (await asked(f"{url}/livez"))[0] == 200
            assert pipeline.process.stdin is not None
            pipeline.process.stdin.write(b"open\n")
            await pipeline.prints("\n100\n")
