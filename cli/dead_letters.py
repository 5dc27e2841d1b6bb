"""``changefeed dead-letters``: what observers could not handle: look, replay, discard."""

import asyncio
import json as json_text
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated

import typer
from rich.table import Table

from changefeed.cli.exit_codes import exit_on_error, print_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import ConfigFlags, ReplayFlags
from changefeed.cli.io.report import say
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.fleet.letters import (
    body,
    by_observer,
    discard_letters,
    existing_letters,
    replay_letters,
    select_letters,
    skipped,
    summary,
)
from changefeed.host.settings import Settings
from changefeed.host.wiring import find_observer
from changefeed.observers.dead_letters import DeadLetter, DeadLetters, LetterHead, LetterId
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import UserError
from changefeed.runtime.exit_codes import FAILED
from changefeed.runtime.logs import set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.printable import printable

dead_letters = typer.Typer(
    help="Look at changes that were put aside; give them to an observer again, or drop them.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one letter a line.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As list names them.")]
All = Annotated[bool, typer.Option("--all", help="All letters.")]
Of = Annotated[
    str | None,
    typer.Option("--of", metavar="OBSERVER", help="Only those of this observer, by its name."),
]
_LONGEST = 60
_NAMES = "changefeed dead-letters list names them"


@dead_letters.command("list")
@with_flags
def list_(flags: ConfigFlags, *, of: Of = None, json: JsonLines = False) -> None:
    """List the letters, without the bodies of their changes."""
    with exit_on_error():
        settings = flags.settings()
        letters = select_letters(asyncio.run(_all(settings)), [], of)
        if json:
            for letter in letters:
                typer.echo(json_text.dumps(summary(letter)))
        elif letters:
            print_whole(_table(letters))
        else:
            typer.echo(_none(of))


@dead_letters.command()
@with_flags
def show(
    letter: Annotated[str, typer.Argument(metavar="ID", help="As list names it.")],
    *,
    flags: ConfigFlags,
    json: Json = False,
) -> None:
    """Show one letter whole: the change with its body, and what the observer raised."""
    with exit_on_error():
        settings = flags.settings()
        found = asyncio.run(_one(settings, letter))
        shown = {
            **summary(found.head),
            "trace": found.failure.trace,
            "body": body(found.change),
        }
        if json:
            typer.echo(json_text.dumps(shown, indent=2))
            return
        for name, value in shown.items():
            text = value if isinstance(value, str) else json_text.dumps(value, indent=2)
            line = f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"
            typer.echo(printable(line, keep="\n"))


@dead_letters.command("replay")
@with_flags
def replay_(
    ids: Ids = None,
    *,
    all_: All = False,
    of: Of = None,
    flags: ReplayFlags,
) -> None:
    """Give changes to the observer again, one by one, and forget those it has handled.

    --all is all letters of this observer, by its name; with --of, all of another, which was
    renamed, say. Letters that are named by their ids are given to it, whosever they are.

    Later changes of the same keys have been handled long ago: the observer must be able to
    recognize an older change. Where one fails again, later ones of its key are left out.
    Ends with 1 if any letter stays that it was given, or was to be given.
    """
    with exit_on_error():
        settings = flags.settings()
        _check_choice("replay", ids, all_=all_, of=of)
        make = find_observer(settings.observer)
        set_up_logs(settings.log)
        with asyncio.Runner() as runner:
            stay = run_main_task(runner, _replay(settings, make, ids or [], of))
    raise typer.Exit(FAILED if stay else 0)


@dead_letters.command()
@with_flags
def discard(ids: Ids = None, *, all_: All = False, of: Of = None, flags: ConfigFlags) -> None:
    """Forget letters for good, without giving their changes to an observer."""
    with exit_on_error():
        _check_choice("discard", ids, all_=all_, of=of)
        asyncio.run(_discard(flags.settings(), ids or [], of))


def _check_choice(what: str, ids: Sequence[str] | None, *, all_: bool, of: str | None) -> None:
    if bool(ids) == all_:
        raise UserError(f"name the letters to {what}, or all of them with --all")
    if ids and of is not None:
        raise UserError("--of goes with --all: letters that are named need no more")


def _none(of: str | None) -> str:
    return "there are no dead letters" + ("" if of is None else f" of observer {of!r}")


def _existing(settings: Settings) -> AbstractAsyncContextManager[DeadLetters]:
    return existing_letters(settings.observer.dead_letters, settings.open_options)


async def _all(settings: Settings) -> Sequence[LetterHead]:
    async with _existing(settings) as letters:
        return await letters.list()


async def _one(settings: Settings, letter_id: str) -> DeadLetter:
    async with _existing(settings) as letters:
        found = await letters.get(LetterId(letter_id))
    if found is None:
        raise UserError(f"there is no dead letter {letter_id!r}: {_NAMES}")
    return found


async def _discard(settings: Settings, ids: Sequence[str], of: str | None) -> None:
    async with _existing(settings) as letters:
        wanted = select_letters(await letters.list(), ids, of)
        async for said in discard_letters(letters, wanted):
            say(said.text)
    if not wanted:
        say(_none(of))


async def _replay(
    settings: Settings, make: ObserverFactory, ids: Sequence[str], of: str | None
) -> int:
    """Return how many of the letters stay that were to be replayed."""
    manual = settings.observer.checkpoint == "manual"
    stay, others = 0, list[LetterHead]()
    async with _existing(settings) as letters:
        wanted = select_letters(await letters.list(), ids, of)
        if not ids and of is None:
            wanted, others = by_observer(wanted, settings.observer.name)
        async for said in replay_letters(letters, wanted, make, manual=manual):
            stay += said.failed
            (print_error if said.failed else say)(said.text)
    for line in skipped(others) if others or wanted else [_none(of)]:
        say(line)
    return stay


def _table(letters: Sequence[LetterHead]) -> Table:
    names = ("id", "key", "failed at", "attempts", "host", "observer", "error")
    return a_table(*names, rows=map(_row, letters))


def _row(x: LetterHead) -> Sequence[str]:
    error = f"{x.kind}: {x.error}"
    summary = error if len(error) <= _LONGEST else f"{error[:_LONGEST]}…"
    at = f"{x.failed_at:%Y-%m-%d %H:%M:%S}"
    return x.id, x.key, at, str(x.attempts), x.host, x.observer, summary
