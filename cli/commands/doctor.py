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
        duration_option("--watch", max=3600.0, help="How long to watch the fleet."),
    ] = 25.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try feed and leases, watch the fleet, and say what is wrong and what to do.

    Each backend adds what it knows; for Cosmos DB: endpoint, key, rights, containers, time
    to live, consistency, clocks. Leases must hold each key of the feed once, and stand where
    it can be read. Then hosts that give no sign of life, ranges that fail, rest or do not get
    on; clocks, settings and versions that differ; processors of another kind, uneven loads,
    endpoints that do not answer, disks that fill up. With --watch=0, the fleet is not watched.

    Ends with 2 if hosts cannot run so, with 1 if there is another problem. It makes no
    container that is not there; in one that is, it writes one item of its own, and deletes it
    again.
    """
    from changefeed.cli import diagnosing

    with exit_on_error():
        diagnosing.doctor(flags.settings(), watch, json=json)
