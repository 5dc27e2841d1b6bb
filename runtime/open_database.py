"""Whether a SQLite file that is kept open is still the file that was opened.

A file that is deleted or replaced stays open: what is written to it is lost without an error,
and what others write is never seen. Its place in the file system shows that. One that is
overwritten in its place (``cp other.db leases.db``) keeps that place, and SQLite does not
notice: it trusts what it has read, and its next checkpoint mixes both files. What the file
itself holds shows that: who made it, and a count that never goes down.

The same holds for the two files beside it, ``-wal`` and ``-shm``: the log of writes, and its
index, through which connections know of each other. A process that opens the database once
they are gone makes new ones, and neither sees nor waits for those that go on in the old. SQLite
itself removes them only with the last connection, and empties the log in its place.

Limits: a copy that is as far as the file was when it was last looked at is not distinguished
from it. The look goes past the log of writes, so it sees what SQLite has copied into the file.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from changefeed.runtime.file_errors import sqlite_code

_LOOK_EVERY = 0.5
"""A look costs a tenth of a millisecond: too much for each write."""
_TRIES = 4
_TRY_AGAIN_AFTER = 0.05
_OTHER_FILE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})

_BESIDE = ("-wal", "-shm")

Marks = Sequence[Any]
"""What identifies a file, and last a count that never goes down."""

_Place = tuple[int, int]
"""Where a file lies, whatever leads to it: its device and its number there."""


class FileChange(StrEnum):
    """What happened to a file that is open, for people."""

    DELETED = "deleted"
    REPLACED = "replaced"
    OVERWRITTEN = "overwritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFile:
    """A file that is open, and is not what its path leads to any more."""

    path: Path
    became: FileChange

    def __str__(self) -> str:
        return f"{self.path} was {self.became}"


class OpenDatabase:
    """A database that is kept open, and what its path led to when this was made.

    ``marks`` is a statement for the marks of the file, in one row.
    """

    def __init__(
        self, path: Path, marks: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._statement = marks
        self._clock = clock
        self._places: dict[Path, _Place | None] = {path: _place_of(path)}
        self._marks = self._looked()
        self._looked_at = clock()

    @property
    def is_marked(self) -> bool:
        """Whether marks were found in the file: until then it is known by its place alone."""
        return self._marks is not None

    def watch_log(self) -> None:
        """Know the log of writes and its index, too, from now on.

        Call it once a connection that stays open has read in WAL mode: before, another
        process that is the last to close the file may remove both.
        """
        file = self.path.resolve()  # they lie beside it, not beside a link to it
        for beside in (file.with_name(f"{file.name}{x}") for x in _BESIDE):
            place = _place_of(beside)
            if place is not None:
                self._places[beside] = place

    def lost(self) -> LostFile | None:
        """Return what happened to a file since; ``None`` if all are the same. May block."""
        for path, place in self._places.items():
            found = _place_of(path)
            if found != place:
                became = FileChange.DELETED if found is None else FileChange.REPLACED
                return LostFile(path=path, became=became)
        now = self._clock()
        if now - self._looked_at < _LOOK_EVERY:
            return None
        self._looked_at = now
        if self._is_marked_as_before():
            return None
        return LostFile(path=self.path, became=FileChange.OVERWRITTEN)

    def _is_marked_as_before(self) -> bool:
        """Look at the marks, more than once before another file is seen in them: SQLite may
        be copying into the file at this moment.
        """
        for _ in range(_TRIES):
            try:
                marks = self._looked()
            except sqlite3.Error:
                return True  # no look was possible: out of file handles, or a bad disk
            if self._marks is None or goes_on(self._marks, marks):
                self._marks = marks
                return True
            time.sleep(_TRY_AGAIN_AFTER)
        return False

    def _looked(self) -> Marks | None:
        """Read what the file holds, without locks and without the log of writes.

        It is SQLite that reads, because a file of this process that is opened and closed by
        other means loses its locks.
        """
        address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                # Else it refuses a file into which it has copied a part of its log: it is
                # shorter than its first page says, for as long as the disk is full.
                connection.execute("pragma writable_schema = on")
                row = connection.execute(self._statement).fetchone()
        except sqlite3.Error as error:
            if sqlite_code(error) in _OTHER_FILE:
                return None
            raise
        return None if row is None else tuple(row)


def _place_of(path: Path) -> _Place | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - quicker, and it is asked often
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def goes_on(before: Marks, now: Marks | None) -> bool:
    """Whether a file with the marks ``now`` can be the one that had ``before``."""
    return now is not None and before[:-1] == now[:-1] and (now[-1] or 0) >= (before[-1] or 0)
