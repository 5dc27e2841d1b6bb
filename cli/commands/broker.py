"""``changefeed broker``: this process is one broker of a cluster, or supervises several."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.cli import import_structlog
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import Processes, SettingPath, SettingsFlags, StopAtEof, with_flags

if TYPE_CHECKING:
    from changefeed.log.brokers.settings import BrokerSettings


@dataclass(frozen=True, kw_only=True)
class BrokerFlags(SettingsFlags):
    """The flags of a broker."""

    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Where the cluster lies: file:///DIRECTORY, s3://…"),
        SettingPath(("broker", "cluster")),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="The broker's name, unique within the cluster."),
        SettingPath(("broker", "name")),
    ] = None

    def settings(self) -> "BrokerSettings":
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        from changefeed.log.brokers.settings import load_broker_settings

        return load_broker_settings(self.config, self.nested())


@with_flags
def broker(
    flags: BrokerFlags, *, processes: Processes = None, stop_at_eof: StopAtEof = False
) -> None:
    """Run one broker: take records for its ranges, and serve the records of all.

    SIGTERM or Ctrl-C hands its ranges to the others first, a second one ends it at once.
    Settings come from these flags, from the environment (CHANGEFEED_BROKER__WEB__TOKEN) and
    from a file. Ends with 0 after a stop, 2 if something must be changed first, 1 for other
    failures. With --processes, the brokers listen at ports that follow each other, a broker
    that dies is started again, and the worst code is that of all.
    """
    import_structlog()
    from changefeed.cli.brokers import run_several
    from changefeed.log.brokers.run import run_broker

    with exit_on_error():
        if processes is None:
            run_broker(flags.settings(), stop_at_eof=stop_at_eof)
        else:
            run_several(flags, flags.settings(), processes)
