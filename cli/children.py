"""``--processes``: several processes of one command on this machine, under one supervisor."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import typer

from changefeed.cli.supervisor import Supervisor
from changefeed.host.child_start import ChildStart
from changefeed.runtime.signals import on_stop_signals

INTERPRETER: Final = (sys.executable, "-P", "-m", "changefeed")
"""How a command line begins. -P: the current directory must not come before our packages, as
it does with -m.
"""

_SLACK = 15.0
"""A child ends by itself some seconds after its own budget; only then it is killed."""


def run_processes(
    base: str,
    count: int,
    arguments: Callable[[str, int], Sequence[str]],
    *,
    stop_timeout: float,
) -> NoReturn:
    """Run ``count`` processes until all have ended; end with the worst of their codes.

    ``arguments`` gives the command line of one, by its name and its number, which begins at 0.
    """
    names = [f"{base}-{n}" for n in range(1, count + 1)]

    def command(child: ChildStart) -> Sequence[str]:
        own = arguments(child.name, names.index(child.name))
        return [*INTERPRETER, *own, "--stop-at-eof"]

    raise typer.Exit(asyncio.run(supervise(names, command, stop_timeout=stop_timeout)))


async def supervise(
    names: Sequence[str],
    command: Callable[[ChildStart], Sequence[str]],
    *,
    stop_timeout: float,
) -> int:
    """Run a process for each name until all have ended; return the worst of their codes.

    A stop takes ``stop_timeout`` seconds, and some more.
    """

    async def start(child: ChildStart) -> Process:
        return await asyncio.create_subprocess_exec(
            *command(child),
            stdin=PIPE,
            process_group=0,
            env={**os.environ, **child.environment},
        )

    supervisor = Supervisor(start, budget=stop_timeout + _SLACK)
    with on_stop_signals(supervisor.stop):
        return await supervisor.run(names)
