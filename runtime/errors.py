"""The two bases of every known error, by what the user of a command has to do about it.

``UserError``   a person has to change something first: exit code 2
``Failure``     it failed, and the same may work later: exit code 1

An error that is both (``FeedRefused`` is a ``FeedError``) counts as the first.
"""


class UserError(Exception):
    """A person has to change something first. The text is the advice."""


class Failure(Exception):
    """It failed, and the same may work later."""
