"""The emulator as users run it: ``changefeed emulator``, in a process of its own."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.commands import running
from tests.support.ports import free_port as free_port  # noqa: PLC0414 - with it, tests choose one
from tests.support.processes import Running


@asynccontextmanager
async def emulator_process(
    cwd: Path, *arguments: str, port: int = 0
) -> AsyncIterator[tuple[Running, str]]:
    """Run the command, and give it with its URL; it does not outlive the block."""
    async with running("emulator", f"--port={port}", *arguments, cwd=cwd) as process:
        await process.reaches(lambda: "serving" in process.printed)
        found = re.search(r"http\S+", process.printed)
        assert found is not None
        yield process, found[0]


async def control(url: str, verb: str, path: str, **body: Any) -> Any:
    """Ask the emulator for what only it can do: splits, merges, faults, counts."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(verb, f"{url}_emulator/{path}", json=body) as answer,
    ):
        told = await answer.json()
        assert answer.status == 200, told
        return told
