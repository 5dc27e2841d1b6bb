"""The two bases of every known error, by what the user of a command has to do about it.

``UserError``   a person has to change something first: exit code 2
``Failure``     it failed, and the same may work later: exit code 1

An error that is both (``FeedRefused`` is a ``FeedError``) counts as the first.
"""

from typing import TypeVar

E = TypeVar("E", bound=Exception)


class UserError(Exception):
    """A person has to change something first. The text is the advice."""

    may_pass = False
    """Whether a server said so, which may answer otherwise when it is asked again."""


class Failure(Exception):
    """It failed, and the same may work later."""


def answered(error: E) -> E:
    """Mark an error as the answer of a server."""
    if isinstance(error, UserError):
        error.may_pass = True
    return error
