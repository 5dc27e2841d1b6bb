"""The emulator as users run it: ``cosmos-emulator``, in a process of its own."""

import asyncio
import multiprocessing
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cosmos_emulator.command import main

COMMAND = (sys.executable, "-m", "cosmos_emulator")
_PATIENCE = 300
_forks = multiprocessing.get_context("forkserver")  # it has imported what each needs, once
_forks.set_forkserver_preload(["cosmos_emulator.command", "cosmos_emulator.testing"])


@asynccontextmanager
async def process(cwd: Path, *arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Run the command on any free port, and give it with its URL."""
    command = (*COMMAND, "--port=0", *arguments)
    started = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=PIPE, stderr=STDOUT
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE):
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
    with tempfile.NamedTemporaryFile() as said:
        given = (cwd, said.name, dict(os.environ), arguments)
        command = _forks.Process(target=_called, args=given, daemon=True)
        command.start()
        command.join(_PATIENCE)
        assert command.exitcode is not None, "it goes on"
        return command.exitcode, said.read().decode()


def _called(cwd: Path, said: str, environment: dict[str, str], arguments: list[str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    with Path(said).open("wb") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    main(arguments)
