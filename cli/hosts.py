"""``changefeed hosts``: several hosts on this machine, one process each."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.host.settings import Settings
from changefeed.host.shutdown import stop_signals
from changefeed.host.supervisor import ChildStart, Supervisor, child_names
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger, set_up_logs

_SLACK = 15.0
"""A child ends by itself some seconds after its own budget; only then it is killed."""

_log = get_logger()


@with_flags
def hosts(
    count: Annotated[int, typer.Argument(min=1, help="How many hosts.")],
    flags: HostFlags,
) -> None:
    """Run several hosts on this machine, NAME-1, NAME-2 and so on, under one supervisor.

    A host that dies is started again. SIGTERM or Ctrl-C stops all of them in an orderly
    way, a second one kills them. Ends with the worst code of the hosts.
    """
    with exit_on_error():
        settings = flags.settings()
        if settings.observer.name is None:
            raise UserError("no observer was named; give one with --observer, e.g. log")
        set_up_logs(settings.log)
        code = asyncio.run(_supervise(flags, settings, count))
    raise typer.Exit(code)


async def _supervise(flags: HostFlags, settings: Settings, count: int) -> int:
    names = child_names(settings.host.name, count)

    async def start(child: ChildStart) -> Process:
        return await asyncio.create_subprocess_exec(
            *command(flags, settings, child, names.index(child.name)),
            stdin=PIPE,
            process_group=0,
        )

    supervisor = Supervisor(start, budget=settings.host.stop_timeout + _SLACK)
    _on_signals(supervisor.stop)
    _log.info("hosts.starting", hosts=names)
    code = await supervisor.run(names)
    _log.info("hosts.stopped", code=code)
    return code


def command(flags: HostFlags, settings: Settings, child: ChildStart, index: int) -> list[str]:
    """Return the command line of one child. A fixed port is that of the first one."""
    ports = [f"--set=web.port={settings.web.port + index}"] if settings.web.port else []
    # -P: the current directory must not come before our packages, as it does with -m.
    interpreter = [sys.executable, "-P", "-m", "changefeed"]
    own = [
        f"--name={child.name}",
        f"--set=host.incarnation={child.incarnation}",
        f"--set=host.replaces={','.join(child.dead)}",
        "--stop-at-eof",
    ]
    return [*interpreter, "run", *flags.arguments_of_child(), *ports, *own]


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
