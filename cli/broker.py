"""``changefeed broker``: this process is one broker of a cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from changefeed.brokers.run import run_broker
from changefeed.brokers.settings import BrokerSettings, load_broker_settings
from changefeed.cli.config_file import config_text, write_config
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import Sets, SettingsFlags, with_flags

HEAD = """\
All settings of a broker. A line that begins with # and a name is a setting with its default:
take away the # to set it. Times are in seconds. The environment overrides this file
(CHANGEFEED_BROKER__WEB__PORT=7071), and the command line overrides both.
"""


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
    init_config: Annotated[
        Path | None,
        typer.Option("--init-config", help="Write a file with all settings, and end."),
    ] = None,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", hidden=True, help="Stop when standard input ends.")
    ] = False,
) -> None:
    """Run one broker: take records for its partitions, and serve those of all.

    SIGTERM or Ctrl-C hands its partitions to the others first, a second one ends it at once.
    Settings come from these flags, from the environment (CHANGEFEED_BROKER__WEB__TOKEN) and
    from a file. Ends with 0 after a stop, 2 if something must be changed first, 1 for other
    failures.
    """
    with exit_on_error():
        if init_config is not None:
            write_config(init_config, config_text(HEAD, BrokerSettings), force=False)
            return
        run_broker(flags.settings(), stop_at_eof=stop_at_eof)
