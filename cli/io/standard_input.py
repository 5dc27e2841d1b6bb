"""Standard input, which may have been closed: ``sys.stdin`` is ``None`` then."""

import sys
from typing import TextIO

import typer

from changefeed.runtime.errors import UserError


def open_standard_input() -> TextIO:
    """Return it. Raise ``UserError`` where it was closed."""
    if sys.stdin is None:
        raise UserError("standard input is closed: name a file, or give it something to read")
    return sys.stdin


def confirmed(question: str) -> bool:
    """Ask, and return whether the answer is yes. No answer, as of a closed input, is no."""
    if sys.stdin is None:
        typer.echo(f"{question} There is no input to answer with: see --yes")
        return False
    try:
        return typer.confirm(question)
    except typer.Abort:  # the input has ended, or it was Ctrl-C
        typer.echo()
        return False
