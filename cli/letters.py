"""What observers could not handle: shown, replayed, discarded, and what is printed of it."""

import asyncio
import json as json_text
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
import typer
from rich.table import Table

from changefeed.cli.exit_codes import print_error
from changefeed.cli.io.documents import as_json
from changefeed.cli.io.report import say
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.fleet.letters import (
    LetterDocument,
    by_observer,
    discard_letters,
    existing_letters,
    replay_letters,
    select_letters,
    skipped,
)
from changefeed.host.settings import Settings
from changefeed.host.wiring import find_observer
from changefeed.observers.dead_letters import DeadLetters, LetterHead, LetterId
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.printable import printable

_MAX_SHOWN = 60
_NAMES = "changefeed dead-letters list names them"


def print_letters(settings: Settings, ids: Sequence[str], *, json: bool) -> None:
    """Print the heads of all letters, or the letters of these ids whole: as a table or text,
    or as one JSON array. Raise ``UserError`` for an id that there is not.
    """
    found = asyncio.run(_whole(settings, ids) if ids else _heads(settings))
    if json:
        typer.echo(as_json(found, indented=True))
    elif ids:
        typer.echo("\n\n".join(map(_text, found)))
    elif found:
        print_whole(_table(found))
    else:
        typer.echo(_none(None))


def replay(settings: Settings, ids: Sequence[str], of: str | None) -> int:
    """Return how many of the letters stay that were to be replayed."""
    make = find_observer(settings.observer)
    set_up_logs(settings.log)
    with asyncio.Runner() as runner:
        return run_main_task(runner, _replay(settings, make, ids, of))


def discard(settings: Settings, ids: Sequence[str]) -> None:
    """Forget these letters, or all."""
    asyncio.run(_discard(settings, ids))


def check_choice(what: str, ids: Sequence[str], *, all_: bool, of: str | None = None) -> None:
    """Raise ``UserError`` unless letters are named, or all are meant, and not both."""
    if bool(ids) == all_:
        raise UserError(f"name the letters to {what}, or all of them with --all")
    if ids and of is not None:
        raise UserError("--of goes with --all: letters that are named need no more")


def _none(of: str | None) -> str:
    return "there are no dead letters" + ("" if of is None else f" of observer {of!r}")


def _existing(settings: Settings) -> AbstractAsyncContextManager[DeadLetters]:
    return existing_letters(settings.observer.dead_letters, settings.open_options)


async def _heads(settings: Settings) -> Sequence[LetterHead]:
    async with _existing(settings) as letters:
        return await letters.list()


async def _whole(settings: Settings, ids: Sequence[str]) -> Sequence[LetterDocument]:
    shown = []
    async with _existing(settings) as letters:
        for x in ids:
            found = await letters.get(LetterId(x))
            if found is None:
                raise UserError(f"there is no dead letter {x!r}: {_NAMES}")
            shown.append(LetterDocument.whole(found))
    return shown


async def _discard(settings: Settings, ids: Sequence[str]) -> None:
    async with _existing(settings) as letters:
        wanted = select_letters(await letters.list(), ids, None)
        async for said in discard_letters(letters, wanted):
            say(said.text)
    if not wanted:
        say(_none(None))


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


def _text(letter: LetterHead) -> str:
    """Return a letter as lines, one for each field, or more where its text has more."""
    lines = []
    for name, value in msgspec.to_builtins(letter).items():
        text = value if isinstance(value, str) else json_text.dumps(value, indent=2)
        lines.append(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
    return printable("\n".join(lines), keep="\n")


def _table(letters: Sequence[LetterHead]) -> Table:
    names = ("id", "key", "failed at", "attempts", "host", "observer", "error")
    return a_table(*names, rows=map(_row, letters))


def _row(x: LetterHead) -> Sequence[str]:
    error = f"{x.kind}: {x.error}"
    summary = error if len(error) <= _MAX_SHOWN else f"{error[:_MAX_SHOWN]}…"
    at = f"{x.failed_at:%Y-%m-%d %H:%M:%S}"
    return x.id, x.key, at, str(x.attempts), x.host, x.observer, summary
