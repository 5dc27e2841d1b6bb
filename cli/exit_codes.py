"""Known errors become a message and an exit code; a traceback means a bug of ours.

``--processes`` starts a process again after ``FAILED`` and ``STOOD_STILL``, not after
``USER_ERROR`` and ``CLOSED_PIPE``.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from changefeed.cli import interrupted_code, raise_interrupts
from changefeed.cli.streams import discard_full_output, discard_output, write_error
from changefeed.runtime.errors import Failure, UserError
from changefeed.runtime.exit_codes import CLOSED_PIPE, FAILED, USER_ERROR
from changefeed.runtime.file_errors import what_to_change
from changefeed.runtime.garbage import resume_collections
from changefeed.runtime.printable import printable

_KNOWN = (UserError, Failure, OSError)


def exit_message(error: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code for an error, ``None`` for what is a bug."""
    errors = list(_single(error))
    if not all(isinstance(x, _KNOWN) for x in errors):
        return None
    texts = dict.fromkeys(": ".join((*_notes(x), _advised(x))) for x in errors)  # each once
    by_person = any(isinstance(x, UserError) or _advice(x) is not None for x in errors)
    return "; ".join(texts), USER_ERROR if by_person else FAILED


def _advised(error: BaseException) -> str:
    advice = _advice(error)
    return str(error) if advice is None else f"{error}; {advice}"


def _advice(error: BaseException) -> str | None:
    return what_to_change(error) if isinstance(error, OSError) else None


def _notes(error: BaseException) -> list[str]:
    """Return what was noted of an error, as the processor that it ended."""
    return getattr(error, "__notes__", [])


def _single(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from _single(one)


def print_error(text: str) -> None:
    write_error("changefeed: " + printable(text, keep="\n") + "\n")


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the command with a message instead of a traceback, where the error is known.

    A command has imported what does its work by now.
    """
    raise_interrupts()
    resume_collections()
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(interrupted_code()) from None
    except Exception as error:
        if all(isinstance(x, BrokenPipeError) for x in _single(error)):  # typer would make it 1
            discard_output(sys.stdout)
            raise typer.Exit(CLOSED_PIPE) from None
        ended = exit_message(error)
        if ended is None:
            raise
        _end(*ended)


def _end(text: str, code: int) -> NoReturn:
    print_error(text)
    discard_full_output()
    raise typer.Exit(code) from None
