"""What commands say of what they change. Output that cannot be written stops none of the work.

Where standard output is full, or its reader has gone, what is left of it goes to standard
error, and the command ends as its work does: run again for what was only not printed, it
would do it twice. Commands that only look fail instead, as there is nothing else.
"""

import sys
from collections.abc import Callable
from functools import partial

import typer
from rich.console import RenderableType

from changefeed.cli.exit_codes import print_error
from changefeed.cli.io.tables import print_whole
from changefeed.cli.streams import output_was_closed, send_output_to_errors, write_error
from changefeed.runtime.errors import UserError
from changefeed.runtime.printable import printable


def say(text: str) -> None:
    """Print a line, or several, of what was done."""
    _print_somewhere(partial(typer.echo, printable(text, keep="\n")))


def show(shown: RenderableType) -> None:
    """Print a table of what is to be done, or was."""
    _print_somewhere(partial(print_whole, shown))


def remark(text: str) -> None:
    """Print a line beside what a command prints."""
    write_error(printable(text, keep="\n") + "\n")


def write_document(document: bytes) -> None:
    """Write what was asked for to standard output. Raise ``UserError`` where it is closed, and
    ``OSError`` if not all of it can be written.
    """
    if output_was_closed():
        raise UserError("standard output is closed: let it go to a file, or name one")
    sys.stdout.buffer.write(document)
    sys.stdout.buffer.flush()


def _print_somewhere(printing: Callable[[], None]) -> None:
    try:
        printing()
    except OSError as error:
        print_error(f"standard output: {error.strerror}. What it does not take is said here")
        send_output_to_errors()
        printing()
