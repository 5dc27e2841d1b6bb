"""A thousand half-sent requests against every port we listen at, in processes of 256 files."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from changefeed.leases.addresses import open_container
from tests.support.commands import PLACES, a_log_of, running
from tests.support.emulator_process import free_port
from tests.support.processes import Running

pytestmark = pytest.mark.real_time
T = TypeVar("T")
_FILES = 256
_STRANGERS = 1000
_HALF = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "


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


async def test_a_monitor_answers_prometheus(tmp_path: Path) -> None:
    a_log_of(10, tmp_path)
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}"):
        pass  # makes the file, as a host that left has
    port = free_port()
    command = ("monitor", *PLACES, f"--set=web.port={port}")
    async with with_few_files(running(*command, cwd=tmp_path)) as monitor:
        await monitor.says('"event": "web.listening"')
        async with strangers(port):
            assert (await asked(f"http://127.0.0.1:{port}/metrics"))[0] == 200
            assert files_of(monitor) < _FILES / 2
