"""``changefeed dead-letters``: what observers could not handle: look, replay, discard."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import ConfigFlags, FeedFlags, ReplayFlags
from changefeed.runtime.exit_codes import FAILED

dead_letters = typer.Typer(
    help="List dead letters, replay them through an observer, or discard them.",
    no_args_is_help=True,
    add_completion=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids, as list shows them.")]
Range = Annotated[str, typer.Argument(metavar="RANGE", help="The range of the key.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key that waits.")]
All = Annotated[bool, typer.Option("--all", help="All letters.")]


@dead_letters.command("list")
@with_flags
def list_(ids: Ids = None, *, flags: ConfigFlags, json: Json = False) -> None:
    """List the letters without bodies; or show the letters of some ids whole.

    A whole letter has the change with its body, and the error with its traceback.
    """
    from changefeed.cli import letters

    with exit_on_error():
        letters.print_letters(flags.settings(), ids or [], json=json)


@dead_letters.command()
@with_flags
def replay(
    ids: Ids = None,
    *,
    all_: All = False,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="OBSERVER", help="Only letters of the observer of this name."
        ),
    ] = None,
    flags: ReplayFlags,
) -> None:
    """Give changes to the observer again, one by one, and delete the letters it handles.

    --all takes all letters of this observer, by its name. If the observer was renamed, give
    the old name with --of. Letters that you name by their ids may be of any observer.

    The observer has handled later changes of the same keys long ago, so it must recognize an
    older change. Where a letter fails again, later ones of its key are left out. Ends with 1
    if any of these letters stays.
    """
    from changefeed.cli import letters

    with exit_on_error():
        settings = flags.settings()
        letters.check_choice("replay", ids or [], all_=all_, of=of)
        stay = letters.replay(settings, ids or [], of)
    raise typer.Exit(FAILED if stay else 0)


@dead_letters.command()
@with_flags
def discard(ids: Ids = None, *, all_: All = False, flags: ConfigFlags) -> None:
    """Delete letters for good, without giving their changes to an observer."""
    from changefeed.cli import letters

    with exit_on_error():
        letters.check_choice("discard", ids or [], all_=all_)
        letters.discard(flags.settings(), ids or [])


@dead_letters.command()
@with_flags
def park(range_: Range, key: Key, *, flags: FeedFlags) -> None:
    """Put the change that a key waits for to the dead letters, so that the key goes on.

    The host that reads the range tries the change once more before. If the change fails, it
    becomes a dead letter at once, whatever observer.retry.attempts says.
    """
    from changefeed.cli import waiting_keys

    with exit_on_error():
        asyncio.run(waiting_keys.ask(flags.settings(), range_, key, aside=True))


@dead_letters.command()
@with_flags
def release(range_: Range, key: Key, *, flags: FeedFlags) -> None:
    """Try the change that a key waits for now; the host that reads the range does so."""
    from changefeed.cli import waiting_keys

    with exit_on_error():
        asyncio.run(waiting_keys.ask(flags.settings(), range_, key, aside=False))
