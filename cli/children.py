"""Several processes of one command on this machine, under one supervisor."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Final

from changefeed.host.supervisor import ChildStart, Supervisor
from changefeed.runtime.signals import on_stop_signals

INTERPRETER: Final = (sys.executable, "-P", "-m", "changefeed")
"""How a command line begins. -P: the current directory must not come before our packages, as
it does with -m.
"""

MOST_CHILDREN: Final = 1024
"""More of them on one machine are a mistyped number."""

_SLACK = 15.0
"""A child ends by itself some seconds after its own budget; only then it is killed."""


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
