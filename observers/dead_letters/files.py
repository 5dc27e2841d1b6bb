"""What it means that a file of dead letters cannot be opened, read or written."""

import sqlite3

from changefeed.observers.errors import DeadLettersRefused, DeadLettersUnavailable
from changefeed.runtime.file_errors import why_it_may_pass


def not_opened(path: str, error: OSError | sqlite3.Error) -> Exception:
    """Return ``DeadLettersUnavailable`` if asking again can help, or else
    ``DeadLettersRefused``.
    """
    text = f"dead letters cannot be kept in {path}: {explained(error)}"
    if why_it_may_pass(error) is None:
        return DeadLettersRefused(text)
    return DeadLettersUnavailable(text)


def explained(error: OSError | sqlite3.Error) -> str:
    """Return its text, with what to do about it where that is known."""
    reason = why_it_may_pass(error)
    return f"{error}; {reason}" if reason else str(error)
