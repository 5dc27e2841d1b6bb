"""``changefeed doctor``: what is wrong with feed, leases and fleet, in sentences."""

from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.quantities import duration_option


@with_flags
def doctor(
    flags: FeedFlags,
    *,
    watch: Annotated[
        float,
        duration_option(
            "--watch", max=3600.0, default="25s", help="How long to watch the fleet."
        ),
    ] = 25.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try feed and leases, watch the fleet, and say what is wrong and what to do.

    It tries the feed and the stores first; in Cosmos DB endpoint, key, rights, containers,
    time to live, consistency and clocks. It checks that leases hold each key of the feed once,
    at positions that can be read. Then it watches for hosts without a sign of life, ranges
    that fail or stand still, uneven loads, full disks, endpoints that do not answer, and for
    clocks, settings and versions that differ. With --watch=0, it does not watch the fleet.

    Ends with 2 if hosts cannot run with these settings, with 1 if there is another problem. It
    creates no container. In a container of leases it writes one item, and deletes it again.
    """
    from changefeed.cli import diagnosing

    with exit_on_error():
        diagnosing.doctor(flags.settings(), watch, json=json)
