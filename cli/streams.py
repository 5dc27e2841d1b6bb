"""Standard streams that were closed, are full, or know less than our letters."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, Final

_closed: Final = set[int]()


def prepare_streams() -> None:
    """Open what is closed on nothing: else a database gets its number, and what is printed.
    Let no letter be one too many for an encoding.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
            _closed.add(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # else it is closed, or another's
            stream.reconfigure(errors="backslashreplace")


def output_was_closed() -> bool:
    """Whether standard output was closed when the process began."""
    return 1 in _closed


def write_error(text: str) -> None:
    """Write to standard error; where that takes nothing, write nothing."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)


def discard_output(stream: IO[str]) -> None:
    """Let nothing more be written, also not what is left, by Python at the end of it all."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def discard_full_output() -> None:
    """Leave standard output if it does not take what it was given: it was said, and once."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output(sys.stdout)


def send_output_to_errors() -> None:
    """Let standard error have all that standard output is given from now on."""
    discard_output(sys.stdout)
    with suppress(OSError):
        sys.stdout.flush()  # a part of a line, perhaps
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
