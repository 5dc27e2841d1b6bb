"""Paths as people type them."""

from collections.abc import Callable
from pathlib import Path

from changefeed.runtime.errors import UserError


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
