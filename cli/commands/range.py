"""``changefeed range``: more ranges, or fewer, than the feed has."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.quantities import duration_option

_MAX_PARTS = 256

range_ = typer.Typer(
    help="Split a range into parts of its keys, and merge parts.",
    no_args_is_help=True,
    add_completion=False,
)


@range_.command()
@with_flags
def split(
    name: Annotated[str, typer.Argument(metavar="RANGE", help="A range, as status shows it.")],
    flags: FeedFlags,
    *,
    into: Annotated[
        int, typer.Option("--into", min=2, max=_MAX_PARTS, help="How many parts.")
    ] = 2,
) -> None:
    """Split a range into parts of its keys, so that more hosts share it.

    Its owner finishes its current batch, checkpoints and releases it; the parts go on from
    there, and the order of each key is kept. For feeds in Cosmos DB and event logs.
    """
    from changefeed.cli import reshaping

    with exit_on_error():
        asyncio.run(reshaping.split(flags.settings(), name, into))


@range_.command()
@with_flags
def merge(
    ranges: Annotated[
        list[str], typer.Argument(metavar="RANGE", help="Parts with adjacent keys.")
    ],
    flags: FeedFlags,
    *,
    wait: Annotated[
        float,
        duration_option(
            "--wait", max=86_400, default="1m", help="How long to wait for one common position."
        ),
    ] = 60.0,
) -> None:
    """Merge parts of one range of the feed.

    The parts must be at one position. So the command waits until all are read to their end
    while nothing is written to the feed, and ends with 2 if that does not happen in time.
    """
    from changefeed.cli import reshaping

    with exit_on_error():
        asyncio.run(reshaping.merge(flags.settings(), ranges, wait))
