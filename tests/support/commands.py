"""The ``changefeed`` command as users run it: in a process of its own."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE, Running, ended, started

COMMAND = (sys.executable, "-P", "-m", "changefeed")
QUICK = tuple(
    f"--set={x}"
    for x in (
        "leases.expiration=3",
        "feed.poll_interval=0.1",
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
    return ended(
        *COMMAND,
        *arguments,
        cwd=cwd,
        env={**_environment(), **(env or {})},
        stdin=stdin,
        patience=patience,
    )


def running(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Running]:
    """Start a command, which does not outlive the block."""
    # The lines about single leases are what many stories are followed by.
    more = {"CHANGEFEED_LOG__LEVEL": "debug", **(env or {})}
    return started(*COMMAND, *arguments, cwd=cwd, env={**_environment(), **more})


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
