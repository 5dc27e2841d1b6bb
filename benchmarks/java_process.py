"""A program in Java that measures what each line sent to it asks for."""

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from changefeed.feeds.cosmos.address import EMULATOR_KEY
from emulator.tests.clients.programs import java


@asynccontextmanager
async def java_process(url: str, program: str, *arguments: str) -> AsyncIterator[Process]:
    """Run one of the programs, with the emulator at ``url``, until the block is left."""
    command = await asyncio.to_thread(java, program, *arguments)
    quick = [x for x in command if "TieredStopAtLevel" not in x]  # that is for short tests
    process = await asyncio.create_subprocess_exec(
        *quick,
        stdin=PIPE,
        stdout=PIPE,
        env={"COSMOS_ENDPOINT": url, "COSMOS_KEY": EMULATOR_KEY, "PATH": os.environ["PATH"]},
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def ask(process: Process, line: str) -> Any:
    """Send a line, and return what is answered to it."""
    assert process.stdin is not None, "it was asked for"
    assert process.stdout is not None, "it was asked for"
    process.stdin.write(f"{line}\n".encode())
    return json.loads(await process.stdout.readline())
