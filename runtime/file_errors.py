"""What of the errors of files and of SQLite may pass, and what a person has to change."""

import errno
import os
import sqlite3
from collections.abc import Mapping
from typing import Final, TypeAlias

FileError: TypeAlias = OSError | sqlite3.Error | UnicodeDecodeError
"""``UnicodeDecodeError`` is SQLite's, too: its messages quote what it has found."""

OUT_OF_HANDLES: Final = "is this process out of file handles (ulimit -n)?"
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = "make room on the disk"
_NO_ANSWER: Final = "the disk did not answer; look at the system's log"

_OF_SQLITE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_BUSY: "another process did not finish its write in time",
    sqlite3.SQLITE_LOCKED: "another connection did not finish its write in time",
    sqlite3.SQLITE_IOERR: _NO_ANSWER,
    sqlite3.SQLITE_FULL: _NO_ROOM,
    sqlite3.SQLITE_PROTOCOL: "too many processes open it at this moment",
    sqlite3.SQLITE_NOMEM: "this process is out of memory",
}
_OF_FILES: Final[Mapping[int, str]] = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EIO: _NO_ANSWER,
    **dict.fromkeys(_NONE_LEFT, OUT_OF_HANDLES),
}
_RIGHTS: Final = "give this user the right to it, or name another place"
_OF_PLACES: Final[Mapping[int, str]] = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount it so that it can be written, or name another place",
    errno.ENOTDIR: "a part of this path is a file: name another place",
    errno.EISDIR: "it is a directory: name a file",
    errno.ELOOP: "its links lead in a circle: name another place",
    errno.ENAMETOOLONG: "give it a shorter name",
}


def what_to_change(error: OSError) -> str | None:
    """Return what a person has to do about a place, if asking again cannot help."""
    return _OF_PLACES.get(error.errno or 0)


def sqlite_code(error: sqlite3.Error) -> int:
    """Return what is the matter, without its details."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError):
        return sqlite3.SQLITE_CORRUPT  # Python's own error: a text that is no UTF-8
    return (code or sqlite3.SQLITE_ERROR) & 0xFF


def why_it_may_pass(error: FileError) -> str | None:
    """Return what is the matter, for people, if asking again can help; else ``None``."""
    if isinstance(error, UnicodeDecodeError):
        return None
    if isinstance(error, OSError):
        return _OF_FILES.get(error.errno or 0)
    code = sqlite_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and _no_file_can_be_opened():  # SQLite does not say why
        return OUT_OF_HANDLES
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return _NO_ROOM  # for the index of the log of writes
    return _OF_SQLITE.get(code)


def _no_file_can_be_opened() -> bool:
    try:
        handle = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return error.errno in _NONE_LEFT
    os.close(handle)
    return False
