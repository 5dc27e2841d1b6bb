"""``changefeed broker``: this process is one broker of a cluster, or supervises several."""

from dataclasses import dataclass, replace
from typing import Annotated, Never

import typer

from changefeed.brokers.run import run_broker
from changefeed.brokers.settings import BrokerSettings, load_broker_settings
from changefeed.cli.children import Processes, StopAtEof, run_processes
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import Sets, SettingsFlags, with_flags
from changefeed.runtime.logs import set_up_logs


@dataclass(frozen=True, kw_only=True)
class BrokerFlags(SettingsFlags):
    """The flags of a broker."""

    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Where the cluster lies: file:///DIRECTORY, s3://…"),
        Sets(("broker", "cluster")),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="The broker's name, its own within the cluster."),
        Sets(("broker", "name")),
    ] = None
    bind: Annotated[
        str | None,
        typer.Option("--bind", help="The address to listen at; this machine only if not said."),
        Sets(("web", "bind")),
    ] = None
    port: Annotated[
        str | None,
        typer.Option("--port", help="The port to listen at; 0 takes any free one."),
        Sets(("web", "port")),
    ] = None
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", help="HOST:PORT that others are to use."),
        Sets(("web", "advertise")),
    ] = None

    def settings(self) -> BrokerSettings:
        return load_broker_settings(self.config, self.nested())


@with_flags
def broker(
    flags: BrokerFlags,
    *,
    processes: Processes = None,
    stop_at_eof: StopAtEof = False,
) -> None:
    """Run one broker: take records for its partitions, and serve those of all.

    SIGTERM or Ctrl-C hands its partitions to the others first, a second one ends it at once.
    Settings come from these flags, from the environment (CHANGEFEED_BROKER__WEB__TOKEN) and
    from a file. Ends with 0 after a stop, 2 if something must be changed first, 1 for other
    failures. With --processes, they listen at ports that follow each other, a broker that dies
    is started again, and the worst code is that of all.
    """
    with exit_on_error():
        settings = flags.settings()
        if processes is None:
            run_broker(settings, stop_at_eof=stop_at_eof)
        else:
            _run_brokers(flags, settings, processes)


def _run_brokers(flags: BrokerFlags, settings: BrokerSettings, count: int) -> Never:
    set_up_logs(settings.log)
    run_processes(
        settings.broker.name,
        count,
        lambda name, index: _arguments_of(flags, settings, name, index),
        stop_timeout=settings.broker.stop_timeout,
    )


def _arguments_of(
    flags: BrokerFlags, settings: BrokerSettings, name: str, index: int
) -> list[str]:
    """Return the arguments of one broker of several. A fixed port is that of the first one."""
    port = settings.web.port and settings.web.port + index
    return ["broker", *replace(flags, name=name, port=str(port)).arguments()]
