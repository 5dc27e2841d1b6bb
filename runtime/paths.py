"""Paths as people type them, and addresses that hold one.

They are read once, at the start, and name the same file from then on: user code may change the
working directory of the process.
"""

from collections.abc import Callable
from pathlib import Path

from changefeed.runtime.errors import UserError

_OF_FILES = frozenset({"eventlog", "jsonl", "sqlite"})


def expanded(place: str | Path, refuse: Callable[[str], Exception] = UserError) -> Path:
    """Return a path with the home directory for the ``~`` or ``~USER`` that it begins with.

    Raise what ``refuse`` makes of a text where there is no such home, as in a container whose
    user has none.
    """
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        home = Path(place).parts[0]
        raise refuse(f"{place}: there is no home directory for {home}; write it out") from error


def absolute(place: str | Path) -> Path:
    """Return a path that names the same file from any working directory, ``~`` expanded.

    Raise ``UserError`` where there is no such home, or no working directory any more.
    """
    try:
        return expanded(place).absolute()
    except FileNotFoundError as error:
        raise UserError(
            f"{place}: the working directory was deleted; start in another one, or write the "
            f"path from / on"
        ) from error


def absolute_address(address: str) -> str:
    """Return an address with an absolute path, if it is one of a file or directory."""
    scheme, _, place = address.partition(":")
    return f"{scheme}:{absolute(place)}" if place and scheme in _OF_FILES else address
