"""``changefeed monitor``: a whole fleet over HTTP, also while no host runs."""

from dataclasses import dataclass
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import ObserverFlags, with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.fleet.status import DEFAULT_LAG_PER_HOST


@dataclass(frozen=True, kw_only=True)
class MonitorFlags(FeedFlags, ObserverFlags):
    """Those of a look at a fleet, and the observer that letters are replayed to."""


@with_flags
def monitor(
    flags: MonitorFlags,
    *,
    actions: Annotated[
        bool,
        typer.Option("--actions", help="Allow actions from the page, with web.token."),
    ] = False,
    lag_per_host: Annotated[
        int, typer.Option("--lag-per-host", min=1, help="Target lag per host, in changes.")
    ] = DEFAULT_LAG_PER_HOST,
) -> None:
    """Serve a page, metrics and the number of hosts of a fleet; hosts need not run.

    Where settings have \\[processors.NAME], it does so for each, or for those that --processor
    names.

    It listens where web.bind and web.port say, and runs until SIGTERM or Ctrl-C.
    """
    from changefeed.cli import monitoring

    with exit_on_error():
        monitoring.monitor(flags.each_settings(), actions=actions, lag_per_host=lag_per_host)
