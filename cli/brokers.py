"""``changefeed brokers``: several brokers on this machine, one process each."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from typing import Annotated

import typer

from changefeed.brokers.settings import BrokerSettings
from changefeed.cli.broker import BrokerFlags
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.host.shutdown import stop_signals
from changefeed.host.supervisor import ChildStart, Supervisor, child_names
from changefeed.runtime.logs import get_logger, set_up_logs

_SLACK = 15.0
"""A child ends by itself some seconds after its own budget; only then it is killed."""

_log = get_logger()


@with_flags
def brokers(
    count: Annotated[int, typer.Argument(min=1, help="How many brokers.")],
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
        code = asyncio.run(_supervise(flags, settings, count))
    raise typer.Exit(code)


async def _supervise(flags: BrokerFlags, settings: BrokerSettings, count: int) -> int:
    names = child_names(settings.broker.name, count)

    async def start(child: ChildStart) -> Process:
        return await asyncio.create_subprocess_exec(
            *command(flags, settings, child.name, names.index(child.name)),
            stdin=PIPE,
            process_group=0,
        )

    supervisor = Supervisor(start, budget=settings.broker.stop_timeout + _SLACK)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, supervisor.stop)
    _log.info("brokers.starting", brokers=names)
    code = await supervisor.run(names)
    _log.info("brokers.stopped", code=code)
    return code


def command(flags: BrokerFlags, settings: BrokerSettings, name: str, index: int) -> list[str]:
    """Return the command line of one child. A fixed port is that of the first one."""
    port = settings.web.port and settings.web.port + index
    own = replace(flags, name=name, port=str(port))
    # -P: the current directory must not come before our packages, as it does with -m.
    interpreter = [sys.executable, "-P", "-m", "changefeed"]
    return [*interpreter, "broker", *own.arguments(), "--stop-at-eof"]
