"""``changefeed run``: this process is one host."""

from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.host.run import run_host


@with_flags
def run(
    flags: HostFlags,
    *,
    stop_at_eof: Annotated[
        bool,
        typer.Option(
            "--stop-at-eof", hidden=True, help="Stop when standard input ends, as on SIGTERM."
        ),
    ] = False,
) -> None:
    """Run one host: share the ranges of a feed with the other hosts of the fleet.

    SIGTERM or Ctrl-C stops it in an orderly way, a second one at once. Settings come from
    these flags, from the environment (CHANGEFEED_LEASES__EXPIRATION=20) and from a file.
    Ends with 0 after a stop, 2 if something must be changed first, 1 for other failures.
    """
    with exit_on_error():
        run_host(flags.settings(), stop_at_eof=stop_at_eof)
