"""``changefeed log``: look after an event log. ``seal`` makes Parquet of what lies behind; the
other commands are for collections of a cluster (``cli.collections``).
"""

import asyncio
import json as json_text
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from changefeed.cli import collection_status, collections
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.io.report import say, show
from changefeed.cli.io.tables import a_table
from changefeed.feeds.eventlog import EventLogWriter, Sealed, SealPolicy
from changefeed.feeds.producing import log_directory
from changefeed.runtime.errors import UserError

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

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@log.callback()
def _group() -> None:
    """Keep this a group of commands."""


@log.command()
def seal(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The event log.")],
    *,
    closed: Annotated[bool, typer.Option("--closed", help="Ranges that have ended.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Changes committed so long ago, as 12h or 30d."),
    ] = None,
    larger_than: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Ranges with so much to seal, as 64MiB."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put changes of an event log into Parquet files, and give up the room they took.

    Without an option all changes are sealed; each option names some. Hosts and pipelines
    read on as before, from any position. It may be killed at any moment. A writer of the
    log must not run meanwhile: one that runs on can seal by itself (produce --seal).
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


def _policy(closed: bool, older_than: str | None, larger_than: str | None) -> SealPolicy:  # noqa: FBT001 - as the command has it
    return SealPolicy(
        closed=closed,
        older_than=None if older_than is None else _number(older_than, _SECONDS, "12h or 30d"),
        larger_than=None if larger_than is None else _number(larger_than, _BYTES, "64MiB"),
        everything=not closed and older_than is None and larger_than is None,
    )


def _number(text: str, units: dict[str, int], example: str) -> int:
    found = re.fullmatch(rf"([0-9]{{1,15}})({'|'.join(units)})", text)
    if found is None:
        raise UserError(f"{text!r}: write a number and a unit, as in {example}")
    return int(found[1]) * units[found[2]]


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
