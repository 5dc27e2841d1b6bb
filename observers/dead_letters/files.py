"""What it means that a file of dead letters cannot be opened, read or written."""

from changefeed.observers.errors import DeadLettersRefused, DeadLettersUnavailable
from changefeed.runtime.file_errors import FileError, why_it_may_pass


def not_opened(path: str, error: FileError) -> Exception:
    """Return ``DeadLettersUnavailable`` if asking again can help, or else
    ``DeadLettersRefused``.
    """
    text = f"dead letters cannot be kept in {path}: {explained(error)}"
    if why_it_may_pass(error) is None:
        return DeadLettersRefused(text)
    return DeadLettersUnavailable(text)


def explained(error: FileError) -> str:
    """Return its text, with what to do about it where that is known."""
    reason = why_it_may_pass(error)
    return f"{error}; {reason}" if reason else str(error)
