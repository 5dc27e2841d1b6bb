"""``changefeed brokers``: several brokers on this machine, one process each."""

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from changefeed.brokers.settings import BrokerSettings
from changefeed.cli.broker import BrokerFlags
from changefeed.cli.children import INTERPRETER, MOST_CHILDREN, supervise
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.host.supervisor import child_names
from changefeed.runtime.logs import get_logger, set_up_logs

_log = get_logger()


@with_flags
def brokers(
    count: Annotated[int, typer.Argument(min=1, max=MOST_CHILDREN, help="How many brokers.")],
    flags: BrokerFlags,
) -> None:
    """Run several brokers on this machine, NAME-1, NAME-2 and so on, under one supervisor.

    They listen at ports that follow each other. A broker that dies is started again. SIGTERM
    or Ctrl-C stops all of them in an orderly way, a second one kills them. Ends with the worst
    code of the brokers.
    """
    with exit_on_error():
        settings = flags.settings()
        set_up_logs(settings.log)
        names = child_names(settings.broker.name, count)
        code = asyncio.run(
            supervise(
                names,
                lambda child: command(flags, settings, child.name, names.index(child.name)),
                stop_timeout=settings.broker.stop_timeout,
            )
        )
        _log.info("process.stopped", brokers=names, code=code)
    raise typer.Exit(code)


def command(flags: BrokerFlags, settings: BrokerSettings, name: str, index: int) -> list[str]:
    """Return the command line of one child. A fixed port is that of the first one."""
    port = settings.web.port and settings.web.port + index
    own = replace(flags, name=name, port=str(port))
    return [*INTERPRETER, "broker", *own.arguments(), "--stop-at-eof"]
