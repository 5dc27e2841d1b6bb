"""``changefeed hosts``: several hosts on this machine, one process each."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.children import INTERPRETER, MOST_CHILDREN, supervise
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.host.settings import Settings
from changefeed.host.supervisor import ChildStart, child_names
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger, set_up_logs

_log = get_logger()


@with_flags
def hosts(
    count: Annotated[int, typer.Argument(min=1, max=MOST_CHILDREN, help="How many hosts.")],
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
        names = child_names(settings.host.name, count)
        code = asyncio.run(
            supervise(
                names,
                lambda child: command(flags, settings, child, names.index(child.name)),
                stop_timeout=settings.host.stop_timeout,
            )
        )
        _log.info("process.stopped", hosts=names, code=code)
    raise typer.Exit(code)


def command(flags: HostFlags, settings: Settings, child: ChildStart, index: int) -> list[str]:
    """Return the command line of one child. A fixed port is that of the first one."""
    first = settings.web.port
    ports = [f"--set=web.port={first + index}"] if isinstance(first, int) and first else []
    own = [
        f"--name={child.name}",
        "--stop-at-eof",
    ]
    return [*INTERPRETER, "run", *flags.arguments_of_child(), *ports, *own]
