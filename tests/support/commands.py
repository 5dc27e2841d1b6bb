"""The ``changefeed`` command as users run it: in a process of its own."""

import asyncio
import itertools
import json
import os
import re
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-P", "-m", "changefeed")
PATIENCE = 60.0
"""On a busy machine a command takes five seconds to start, and four of them twenty."""

QUICK = tuple(
    f"--set={x}"
    for x in (
        "leases.expiration=3",
        "leases.renew_interval=0.5",
        "leases.balance_interval=0.2",
        "leases.rebalance_delay=0.2",
        "leases.call_timeout=0.5",
        "feed.poll_interval=0.1",
        "feed.lag_interval=0.2",
    )
)
"""Settings under which everything happens within a second or three."""

PLACES = ("--feed=eventlog:log", "--leases=sqlite:leases.db")


def changefeed(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    patience: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env={**_environment(), **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )


_numbers = itertools.count()


class Running:
    """A command that goes on until it is told to stop. What it says goes into a file."""

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

    async def reaches(self, state: Callable[[], bool]) -> None:
        """Wait until something is so, as long as the command runs."""
        async with asyncio.timeout(PATIENCE):
            while not state():
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.05)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def running(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """Start a command, which does not outlive the block."""
    said = cwd / f"stderr-{next(_numbers)}"
    with said.open("wb") as err, said.with_suffix(".out").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            cwd=cwd,
            # The lines about single leases are what many stories are followed by.
            env={**_environment(), "CHANGEFEED_LOG__LEVEL": "debug", **(env or {})},
            stdin=PIPE,
            stdout=out,
            stderr=err,
        )
    try:
        yield Running(process, said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def a_log_of(count: int, cwd: Path, parts: int = 4) -> None:
    """Make ``log`` in ``cwd`` with so many changes, by the command for it."""
    lines = "".join(f'{{"k": "key-{n % 50}", "n": {n}}}\n' for n in range(count))
    made = changefeed(
        "produce", "log", "-", "--key=k", f"--parts={parts}", cwd=cwd, stdin=lines
    )
    assert made.returncode == 0, made.stderr


def status(cwd: Path) -> Any:
    """Return the document of ``changefeed status --json``."""
    shown = changefeed("status", *PLACES, "--json", cwd=cwd)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def owners(cwd: Path) -> list[str | None]:
    """Return the owner of each lease, read past all code of ours."""
    with closing(sqlite3.connect(cwd / "leases.db")) as leases:
        rows = leases.execute("select owner from leases order by range_id").fetchall()
    return [x for (x,) in rows]


def _environment() -> dict[str, str]:
    """The environment of these tests, without what would set settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("CHANGEFEED_", "OTEL_"))}
