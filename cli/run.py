"""``changefeed run``: this process is one host."""

from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import Config, Feed, Observer, Option, Set
from changefeed.cli.host_flags import Choices, CreateLeases, Leases, Name, Start
from changefeed.host.run import run_host


def run(
    *,
    observer: Observer = None,
    config: Config = None,
    feed: Feed = None,
    leases: Leases = None,
    name: Name = None,
    option: Option = None,
    start: Start = None,
    create_lease_container: CreateLeases = False,
    set_: Set = None,
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
        choices = Choices(
            config=config,
            feed=feed,
            leases=leases,
            observer=observer,
            name=name,
            start=start,
            create_leases=create_lease_container,
            options=option or (),
            sets=set_ or (),
        )
        run_host(choices.settings(), stop_at_eof=stop_at_eof)
