"""``changefeed log``: look after an event log, or a collection of a cluster."""

from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.quantities import duration_option, size_option
from changefeed.log.client.address import FORM, PLAIN

log = typer.Typer(
    help="Manage an event log, or a collection of a cluster.",
    no_args_is_help=True,
    add_completion=False,
)

LogAddress = Annotated[
    str,
    typer.Argument(metavar="LOG", help=f"A collection, {PLAIN}:{FORM}, or an event log's DIR."),
]
Range = Annotated[str | None, typer.Argument(metavar="RANGE", help="Range id (default: all).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@log.command()
def create(
    address: LogAddress,
    *,
    parts: Annotated[
        int | None,
        typer.Option("--parts", min=1, help="Number of parts, fixed for good (default: 12)."),
    ] = None,
) -> None:
    """Create a collection, or an event log. Its number of parts is fixed for good."""
    from changefeed.cli import collections

    with exit_on_error():
        collections.create(address, parts)


@log.command()
def status(
    address: LogAddress,
    *,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh each second.")] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Show ranges of ended eras, too.")
    ] = False,
) -> None:
    """Show the brokers, the era, the ranges and their homes, producers, and what is stored.

    An event log has no brokers; it may be looked at while it is written. With --json and
    --watch, each look is one line.
    """
    from changefeed.cli import collection_status

    with exit_on_error():
        collection_status.show(address, json=json, watch=watch, all_=all_)


@log.command()
def split(address: LogAddress, range_: Range = None) -> None:
    """Split a range, or each of them, in halves. A new era begins."""
    from changefeed.cli import collections

    with exit_on_error():
        collections.split(address, range_)


@log.command()
def merge(address: LogAddress, range_: Range = None) -> None:
    """Merge a range and the next one of its part, or all such pairs. A new era begins."""
    from changefeed.cli import collections

    with exit_on_error():
        collections.merge(address, range_)


@log.command()
def retain(
    address: LogAddress,
    *,
    for_: Annotated[
        float | None, duration_option("--for", min=1, help="Keep records: 7d, 12h, 30m, 90s.")
    ] = None,
    bytes_: Annotated[
        int | None, size_option("--bytes", help="Keep at most: 500MiB, 20GiB.")
    ] = None,
    forever: Annotated[bool, typer.Option("--forever", help="Delete nothing.")] = False,
) -> None:
    """Say how long records are kept, or how many bytes of them: what goes beyond is deleted."""
    from changefeed.cli import collections

    with exit_on_error():
        collections.retain(address, seconds=for_, most_bytes=bytes_, forever=forever)


@log.command()
def compact(address: LogAddress, *, json: Json = False) -> None:
    """Put the changes of each range together now, and delete the objects that held them.

    In an event log it compacts all changes; no process may write the log meanwhile. In a
    collection it compacts what ended eras left, and most of the newest one, together with the
    other collections of the cluster; brokers do this by themselves, too. What has a megabyte
    or more there becomes Parquet, after pip install 'changefeed-host\\[segments]'.
    """
    from changefeed.cli import collections

    with exit_on_error():
        collections.compact(address, json=json)
