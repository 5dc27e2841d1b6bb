"""The emulator as users run it: ``cosmos-emulator``, in a process of its own."""

import asyncio
import re
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

COMMAND = (sys.executable, "-m", "cosmos_emulator")


@asynccontextmanager
async def process(cwd: Path, *arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Run the command on any free port, and give it with its URL."""
    command = (*COMMAND, "--port=0", *arguments)
    started = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=PIPE, stderr=STDOUT
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await started.stdout.readline()).decode()
        found = re.search(r"http\S+", line)
        assert found is not None, line
        yield started, found[0]
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


def ended(cwd: Path, *arguments: str) -> tuple[int, str]:
    """Run a command that ends by itself; return its code, and what it said."""
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr
