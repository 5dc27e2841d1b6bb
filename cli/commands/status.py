"""``changefeed status``: who is in the fleet, who owns what, and how far each range is."""

import asyncio
import enum
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags


class Sort(enum.StrEnum):
    """Names in the order of the alphabet, figures the largest first."""

    RANGE = "range"
    OWNER = "owner"
    LAG = "lag"
    LAG_TIME = "lag-time"
    """By the age of the first change that is not done."""
    RATE = "rate"


@with_flags
def status(
    flags: FeedFlags,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh each second.")] = False,
    sort: Annotated[
        Sort, typer.Option("--sort", help="Sort ranges: largest figures first.")
    ] = Sort.RANGE,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            help="Only ranges whose name, owner or state matches (unowned, failing, stuck, "
            "paused, …); * is anything.",
        ),
    ] = "*",
) -> None:
    """Show hosts, ranges and lag, from the lease container; hosts need not run.

    With --json and --watch, each look is one line. changefeed monitor has it as metrics.
    """
    from changefeed.cli import status_tables as tables

    with exit_on_error():
        view = tables.View(sort, filter_)
        tables.refuse_contradictions(view, json=json, watch=watch)
        settings = flags.settings()
        if json:
            asyncio.run(tables.print_json(settings, watch=watch))
        else:
            show = tables.watch_tables if watch else tables.print_tables
            asyncio.run(show(settings, view))
