"""The ``changefeed`` command as users run it, and its quick twin for what needs no process."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    chdir,
    closing,
)
from functools import partial
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.log.records import Record
from tests.support import make
from tests.support.processes import PATIENCE, Running, beside, ended, started

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


def invoked(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself in this process, which has imported it already.

    It has a thread of its own: the loop of the test may run in this one. What imports the
    user's code, or is about processes, is for ``changefeed``.
    """
    environment = {**dict.fromkeys(os.environ.keys() - _environment()), **(env or {})}
    call = partial(
        CliRunner().invoke, app, arguments, stdin, environment, catch_exceptions=False
    )
    with chdir(cwd), ThreadPoolExecutor(1) as aside:
        done = aside.submit(call).result()
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def running(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Running]:
    """Start a command, which does not outlive the block."""
    # The lines about single leases are what many stories are followed by.
    more = {"CHANGEFEED_LOG__LEVEL": "debug", **(env or {})}
    return started(*COMMAND, *arguments, cwd=cwd, env={**_environment(), **more})


def left_running(
    *arguments: str, cwd: Path, printed: Path | int | None = None
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a command with all that it starts; what it says is added to the file ``said``."""
    said = cwd / "said"
    return beside(*COMMAND, *arguments, cwd=cwd, env=_environment(), said=said, printed=printed)


def a_log_of(count: int, cwd: Path, parts: int = 4) -> None:
    """Make ``log`` in ``cwd`` with so many changes, of 50 keys in turns."""
    records = [
        Record(key=f"key-{n % 50}", body=b'{"k": "key-%d", "n": %d}' % (n % 50, n))
        for n in range(count)
    ]
    with ThreadPoolExecutor(1) as aside:  # the loop of the test may run in this thread
        aside.submit(asyncio.run, make.event_log(cwd / "log", records, parts=parts)).result()


def every_command(*, groups: bool = False) -> Mapping[str, Any]:
    """Return what can be run, and groups of it if wanted, by the words after ``changefeed``."""

    def below(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
        is_group = hasattr(command, "list_commands")
        if groups or not is_group:
            yield " ".join(names), command
        for name in command.list_commands(None) if is_group else ():
            yield from below(command.get_command(None, name), *names, name)

    return dict(below(get_command(app)))


def status(cwd: Path) -> Any:
    """Return the document of ``changefeed status --json``."""
    shown = invoked("status", *PLACES, "--json", cwd=cwd)
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
