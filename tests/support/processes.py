"""The processes that tests start: waited for, followed while they run, or left to themselves.

None outlives its block. Their signals are the default ones, also where those of the test run
are ignored, as under ``nohup`` (tests/conftest.py).
"""

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 300
"""How many seconds a test waits for a state: on no machine does it take so long to come."""

Word = str | Path
_numbers = itertools.count()


def ended(
    *command: Word,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    patience: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a program that ends by itself."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )


def python(
    code: str, *arguments: Word, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of Python, which must end well."""
    done = ended(sys.executable, "-c", code, *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return done


class Running:
    """A program that goes on until it is told to stop. What it says goes into a file."""

    def __init__(self, process: Process, said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def printed(self) -> str:
        return self._said.with_suffix(".out").read_text()

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the lines of the log that tell of some kinds of event, or all."""
        lines = [json.loads(x) for x in self.said.splitlines() if x.endswith("}")]
        return [x for x in lines if not names or x["event"] in names]

    async def says(self, text: str, times: int = 1) -> None:
        await self.reaches(lambda: len(re.findall(text, self.said)) >= times)

    async def prints(self, text: str, times: int = 1) -> None:
        await self.reaches(lambda: len(re.findall(text, self.printed)) >= times)

    async def reaches(self, state: Callable[[], bool]) -> None:
        """Wait until something is so, as long as the program runs."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while not state():
            assert self.process.returncode is None, self.said
            assert asyncio.get_running_loop().time() < end, self.said
            await asyncio.sleep(0.05)

    async def stops(self, number: int = signal.SIGTERM) -> None:
        """Tell it to stop, which it must do in order."""
        self.process.send_signal(number)
        assert await self.ends() == 0, self.said

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def started(
    *command: Word, cwd: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """Start a program, and follow what it says, as long as the block lasts."""
    said = cwd / f"stderr-{next(_numbers)}"
    with said.open("wb") as err, said.with_suffix(".out").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, env=env, stdin=PIPE, stdout=out, stderr=err
        )
    try:
        yield Running(process, said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextmanager
def beside(
    *command: Word,
    cwd: Path,
    said: Path,
    printed: Path | int | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program with all that it starts, such as a JVM: they are killed together.

    What it says is added to a file; ``printed`` takes its standard output, if that is another:
    a file, or a handle, which is closed here.
    """
    place = said if printed is None else printed
    with said.open("ab") as log, open(place, "ab") as out:  # noqa: PTH123 - or a handle
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(
    state: Callable[[], object],
    process: "subprocess.Popen[bytes] | None" = None,
    said: Path | None = None,
    *,
    patience: float = PATIENCE,
) -> None:
    """Wait until something is so, as long as the process runs; else fail with what it said."""
    end = time.monotonic() + patience
    while not state():
        ended_early = process is not None and process.poll() is not None
        if ended_early or time.monotonic() > end:
            raise AssertionError(said.read_text() if said else "it did not come to be")
        time.sleep(0.02)
