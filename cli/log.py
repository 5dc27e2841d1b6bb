"""``changefeed log``: look after an event log. ``seal`` makes Parquet of what lies behind; the
other commands are for collections of a cluster (``cli.collections``).
"""

import asyncio
import json as json_text
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli import collection_status, collections
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.io.report import say, show
from changefeed.cli.io.tables import a_table
from changefeed.cli.quantities import duration_option, size_option
from changefeed.feeds.eventlog import EventLogWriter, Sealed, SealPolicy
from changefeed.feeds.producing import log_directory

log = typer.Typer(
    help="Look after an event log, or a collection of a cluster.", no_args_is_help=True
)
for _command in (
    collections.create,
    collection_status.status,
    collections.split,
    collections.merge,
    collections.move,
    collections.retain,
    collections.compact,
):
    log.command()(_command)


@log.callback()
def _group() -> None:
    """Keep this a group of commands."""


@log.command()
def seal(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The event log.")],
    *,
    closed: Annotated[bool, typer.Option("--closed", help="Ranges that have ended.")] = False,
    older_than: Annotated[
        float | None,
        duration_option("--older-than", help="Changes committed so long ago, as 12h or 30d."),
    ] = None,
    larger_than: Annotated[
        int | None,
        size_option("--larger-than", help="Ranges with so much to seal, as 64MiB."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put changes of an event log into Parquet files, and give up the room they took.

    Without an option all changes are sealed; each option names some. Hosts and pipelines
    read on as before, from any position. It may be killed at any moment. A writer of the
    log must not run meanwhile: one that runs on can seal by itself.
    Needs pyarrow: pip install 'changefeed-host\\[segments]'
    """
    with exit_on_error():
        made = asyncio.run(
            _seal(log_directory(directory), _policy(closed, older_than, larger_than))
        )
        if json:
            say(json_text.dumps([_described(x) for x in made]))
        elif made:
            _print(made)
        else:
            say("there was nothing to seal")


async def _seal(home: Path, policy: SealPolicy) -> Sequence[Sealed]:
    async with EventLogWriter.open(home) as writer:
        made = await writer.seal(policy)
        await writer.give_back()
        return made


def _policy(closed: bool, older_than: float | None, larger_than: int | None) -> SealPolicy:  # noqa: FBT001 - as the command has it
    return SealPolicy(
        closed=closed,
        older_than=older_than,
        larger_than=larger_than,
        everything=not closed and older_than is None and larger_than is None,
    )


def _described(made: Sealed) -> dict[str, object]:
    return {
        "range": made.range_id,
        "first": made.first,
        "last": made.last,
        "bytes": made.stored,
        "file_bytes": made.size,
    }


def _print(made: Sequence[Sealed]) -> None:
    columns = ("range", "changes", "from", "to", "bytes before", "bytes now")
    show(a_table(*columns, rows=map(_row, made)))


def _row(made: Sealed) -> Sequence[str]:
    first, last = made.first, made.last
    numbers = last - first + 1, first, last, made.stored, made.size
    return made.range_id, *(f"{x:,}" for x in numbers)
