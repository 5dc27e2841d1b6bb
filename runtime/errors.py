"""The two bases of every known error, by what the user of a command has to do about it, and
what every store raises, whatever it keeps: leases, dead letters, the objects of brokers.

UserError               a person has to change something first: exit code 2
└── NameTaken               as, to give a process a name of its own
Failure                 it failed, and the same may work later: exit code 1
├── Unavailable             no answer: ask again
└── StoreError
    ├── StoreUnavailable    and so: a write may have happened, or may yet
    └── StoreRefused        asking again cannot help: stop, and say so to a person
        └── StoreMissing        there is none yet: nothing to look at; a host may make it

An error that is both (``StoreRefused`` is a ``UserError``, too) counts as the first.
"""

import os
import ssl
from typing import TypeVar

from changefeed.runtime.printable import one_line

E = TypeVar("E", bound=Exception)


class UserError(Exception):
    """A person has to change something first. The text is the advice."""

    may_pass = False
    """Whether a server said so, which may answer otherwise when it is asked again."""


class NameTaken(UserError):
    """Another living process runs under our name: ours has to stop, or to get another."""


class Failure(Exception):
    """It failed, and the same may work later."""


class Unavailable(Failure):
    """No answer came, in time or at all, or it was: not now.

    ``retry_after`` is in seconds, if the other side knows.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason, retry_after)  # args as given, so that it pickles
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.reason


class StoreError(Failure):
    """Something that a store could not do."""


class StoreUnavailable(Unavailable, StoreError):
    """A store did not answer. A write may have happened, or may yet."""


class StoreRefused(StoreError, UserError):
    """Not a store of ours, of another version, not permitted. The text is the advice."""


class StoreMissing(StoreRefused):
    """The store does not exist, or its name is wrong. With ``made_by_run``, ``changefeed run``
    creates it by default.
    """

    def __init__(self, reason: str, *, made_by_run: bool = False) -> None:
        super().__init__(reason)
        self.made_by_run = made_by_run


def answered(error: E) -> E:
    """Mark an error as the answer of a server."""
    if isinstance(error, UserError):
        error.may_pass = True
    return error


def in_one_line(error: BaseException) -> str:
    """Return what an error says, or else what it is, without the breaks in it."""
    return one_line(_of_system(error) or str(error)) or type(error).__name__


def _of_system(error: BaseException | None) -> str:
    """Return what the system says of a connection that aiohttp could not make, below an error
    or as one; nothing of another.
    """
    while error is not None:
        found = getattr(error, "os_error", None)
        if isinstance(found, ssl.SSLError):  # its numbers are none of the system
            why = (found.reason or str(found)).replace("_", " ").lower()
            return f"TLS: {why}; look at the scheme and the port in the address"
        if isinstance(found, OSError):
            number = found.errno or 0  # below 0 where a name was not found
            return os.strerror(number) if number > 0 else found.strerror or ""
        error = error.__cause__
    return ""
