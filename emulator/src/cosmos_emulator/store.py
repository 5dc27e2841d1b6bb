"""What the emulator keeps, in one SQLite database: in memory, or in a directory.

SQLite is called on the event loop. Every call is a short, indexed statement, so a hop to
another thread would cost more than the work; and as nothing is awaited inside a
transaction, the loop itself is the lock: transactions are serial. A query takes its rows in
small portions (``work``). The price is that a split of a large range holds up everybody else.

In a directory a commit hands its pages to the operating system (WAL, without fsync): what was
acknowledged survives a kill -9 of the process, but not a power cut. A directory belongs to
one process at a time, and its snapshot is a copy in memory.

In memory nothing need be committed, so all since the last snapshot is one open transaction,
and the way back is to undo it: SQLite has kept the pages that were changed. Both take as long
as there are changed pages, however much there is besides.
"""

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

_FORMAT = 5  # lower numbers were never released
_SCHEMA = """
CREATE TABLE databases (
    rid TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, ts INTEGER NOT NULL, etag TEXT NOT NULL
) STRICT;
CREATE TABLE containers (
    number INTEGER PRIMARY KEY, rid TEXT NOT NULL UNIQUE, database TEXT NOT NULL,
    id TEXT NOT NULL, properties BLOB NOT NULL, ts INTEGER NOT NULL, etag TEXT NOT NULL,
    topology INTEGER NOT NULL, next_range INTEGER NOT NULL, UNIQUE (database, id)
) STRICT;
CREATE TABLE ranges (
    pid INTEGER PRIMARY KEY, container INTEGER NOT NULL, id TEXT NOT NULL,
    low TEXT NOT NULL, high TEXT NOT NULL, parents TEXT NOT NULL, version INTEGER NOT NULL,
    lsn INTEGER NOT NULL, items INTEGER NOT NULL, bytes INTEGER NOT NULL,
    born INTEGER NOT NULL, gone INTEGER, UNIQUE (container, id)
) STRICT;
CREATE TABLE items (
    number INTEGER PRIMARY KEY, container INTEGER NOT NULL, pid INTEGER NOT NULL,
    epk TEXT NOT NULL, pk TEXT NOT NULL, id TEXT NOT NULL, lsn INTEGER NOT NULL,
    seq INTEGER NOT NULL, ts INTEGER NOT NULL, etag TEXT NOT NULL, ttl INTEGER,
    expires INTEGER, body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX items_by_key ON items (container, epk, pk, id);
CREATE INDEX items_in_order ON items (pid, lsn, seq);
CREATE INDEX items_of_container ON items (container);
CREATE INDEX items_that_expire ON items (container, expires) WHERE expires IS NOT NULL;
CREATE TABLE log (
    seq INTEGER PRIMARY KEY, pid INTEGER NOT NULL, lsn INTEGER NOT NULL, epk TEXT NOT NULL,
    operation TEXT NOT NULL, pk TEXT NOT NULL, id TEXT NOT NULL, crts INTEGER NOT NULL,
    previous INTEGER, expired INTEGER NOT NULL, body BLOB
) STRICT;
CREATE INDEX log_in_order ON log (pid, lsn, seq);
CREATE TABLE offers (
    rid TEXT PRIMARY KEY, owner TEXT NOT NULL UNIQUE, link TEXT NOT NULL,
    throughput INTEGER NOT NULL, autoscale INTEGER NOT NULL, growth INTEGER,
    ts INTEGER NOT NULL, etag TEXT NOT NULL
) STRICT;
CREATE TABLE unique_values (
    container INTEGER NOT NULL, pk TEXT NOT NULL, position INTEGER NOT NULL,
    value TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (container, pk, position, value)
) STRICT;
CREATE INDEX unique_values_of_items ON unique_values (number);
CREATE TABLE principals (
    rid TEXT PRIMARY KEY, parent TEXT NOT NULL, id TEXT NOT NULL, ts INTEGER NOT NULL,
    etag TEXT NOT NULL, definition BLOB, UNIQUE (parent, id)
) STRICT;
CREATE TABLE scripts (
    rid TEXT PRIMARY KEY, container INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
    ts INTEGER NOT NULL, etag TEXT NOT NULL, definition BLOB NOT NULL,
    UNIQUE (container, kind, id)
) STRICT;
"""

_EMPTY = f"BEGIN; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;"
_ALONE = ("BEGIN IMMEDIATE", ("COMMIT",), ("ROLLBACK",))
_WITHIN = ("SAVEPOINT one", ("RELEASE one",), ("ROLLBACK TO one", "RELEASE one"))
"""How a transaction begins, ends well, and is undone: by itself, or within the open one."""
_WITHOUT_WAL = b"\x01\x01"  # at 18 and 19 of a file: memory cannot read one with a WAL
Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]


class Follower(Protocol):
    """Hears of all that a store commits, in its order."""

    def begin(self, leader: "Store") -> None:
        """Take over all that is there; nothing of what came before counts any more."""

    def take(self, committed: Sequence[Statement]) -> None:
        """Take what one transaction wrote: statements that do the same to the same rows."""


class DirectoryInUse(Exception):
    """Another process has the directory. The text is the advice."""


class Store:
    """Runs statements; ``transaction`` makes several of them one.

    ``next_number`` gives numbers that grow and are never given twice: they name items and
    put the log in order.
    """

    def __init__(
        self, directory: Path | None = None, numbers: Iterator[int] | None = None
    ) -> None:
        name = ":memory:" if directory is None else str(_made(directory) / "emulator.sqlite")
        self._db = sqlite3.connect(name, isolation_level=None, timeout=0)
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            self._db.close()
            raise DirectoryInUse(
                f"{directory} is in use by another emulator ({error}). Stop it, or give this "
                f"one another directory."
            ) from error
        self._is_kept = directory is not None
        self._bounds = _ALONE if self._is_kept else _WITHIN
        self._in_transaction = False
        self._snapshot: sqlite3.Connection | None = None  # of a directory
        self._begin()
        self._followers: list[Follower] = []
        self._written: list[Statement] = []  # by the transaction that is under way
        last = self.row("SELECT ifnull(max(seq), 0) FROM log")
        self._numbers = numbers or itertools.count(last[0] + 1 if last else 1)

    def in_memory(self) -> "Store":
        """Return an empty store for the thread that asks; no number is given in both."""
        return Store(numbers=self._numbers)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, _FORMAT):
            self._db.close()
            raise ValueError(
                f"the directory holds data in format {found}, and this emulator reads "
                f"format {_FORMAT} only: give it an empty directory"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        if found == 0:
            self._db.executescript(_EMPTY)

    def next_number(self) -> int:
        return next(self._numbers)

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Return how many rows it changed."""
        changed = self._db.execute(statement, values).rowcount
        if self._followers:
            self._tell(statement, values)
        return changed

    def run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        self._db.executemany(statement, values)
        if self._followers:
            for row in values:
                self._tell(statement, row)

    def row(self, statement: str, values: Sequence[Any] = ()) -> Row | None:
        found: Row | None = self._db.execute(statement, values).fetchone()
        if self._followers and not statement.startswith("SELECT"):
            self._tell(statement, values)
        return found

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Return rows as they are found. Nothing may be written before it is at its end."""
        return self._db.execute(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all or nothing of what is inside; do not await in it.

        Inside of another one it is a part of that.
        """
        if self._in_transaction:
            yield
            return
        begin, end, undo = self._bounds
        self._db.execute(begin)
        self._in_transaction = True
        try:
            yield
            self._run_each(end)
        except BaseException:
            self._written.clear()
            if self._db.in_transaction:  # not after some failures, as of a full disk
                self._run_each(undo)
            raise
        finally:
            self._in_transaction = False
        self._publish()

    def _run_each(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._db.execute(statement)

    def _begin(self) -> None:
        """Begin what a ``restore`` undoes, in memory."""
        if not self._is_kept:
            self._db.execute("BEGIN")

    def follow(self, follower: Follower) -> None:
        """Tell somebody of all that is committed from now on."""
        follower.begin(self)
        self._followers.append(follower)

    def copy_to(self, other: "Store") -> None:
        """Put all that is there in the place of what another store has."""
        with closing(sqlite3.connect(":memory:")) as copied:
            copied.deserialize(self.copy())
            other._load(copied)  # noqa: SLF001 - its own kind

    def _load(self, source: sqlite3.Connection) -> None:
        """Take over all of another database, which nobody changes."""
        if not self._is_kept:
            self._db.execute("COMMIT")  # SQLite copies into nothing that is being changed
        try:
            source.backup(self._db)
        finally:
            self._begin()

    def _tell(self, statement: str, values: Sequence[Any]) -> None:
        self._written.append((statement, values))
        if not self._in_transaction:
            self._publish()

    def _publish(self) -> None:
        if self._written:
            committed, self._written = self._written, []
            for follower in self._followers:
                follower.take(committed)

    def _begin_followers(self) -> None:
        for follower in self._followers:
            follower.begin(self)

    def snapshot(self) -> None:
        """Let ``restore`` go back to what is there now, and not to what was there before."""
        if self._is_kept:
            kept = self._in_memory()
            self._forget_snapshot()
            self._snapshot = kept
        else:
            self._db.execute("COMMIT")
            self._begin()

    def copy(self) -> bytes:
        """Return all that is there now, as a file of SQLite."""
        if not self._is_kept:
            return self._db.serialize()
        with closing(self._in_memory()) as kept:
            whole = kept.serialize()
        return whole[:18] + _WITHOUT_WAL + whole[20:]

    def replace(self, copy: bytes) -> None:
        """Put what ``copy`` gave in the place of what is there, as a snapshot, too.

        Raise ``ValueError`` if it is none.
        """
        with closing(sqlite3.connect(":memory:")) as brought:
            _check_copy(brought, copy)
            self._load(brought)
        if self._is_kept:
            self.snapshot()
        last = self.row("SELECT ifnull(max(seq), 0) FROM log")
        assert last is not None
        self._numbers = itertools.count(max(last[0] + 1, next(self._numbers)))
        self._begin_followers()

    def _in_memory(self) -> sqlite3.Connection:
        kept = sqlite3.connect(":memory:")
        self._db.backup(kept)
        return kept

    def restore(self) -> None:
        """Go back to what was kept, or to nothing. Numbers are not given again."""
        if self._is_kept:
            if self._snapshot is None:
                self._snapshot = sqlite3.connect(":memory:", isolation_level=None)
                self._snapshot.executescript(_EMPTY)
            self._snapshot.backup(self._db)
        else:
            self._db.execute("ROLLBACK")
            self._begin()
        self._begin_followers()

    def _forget_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()

    def close(self) -> None:
        self._forget_snapshot()
        self._db.close()


def _check_copy(brought: sqlite3.Connection, copy: bytes) -> None:
    """Load a copy; ``ValueError`` unless it is whole, and has these tables and no others."""
    try:
        brought.deserialize(copy)
        is_whole = brought.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        found = brought.execute("PRAGMA user_version").fetchone()[0]
        tables = set(brought.execute("SELECT sql FROM sqlite_schema"))
    except sqlite3.DatabaseError as error:
        raise ValueError(f"This is no export of an account: {error}.") from error
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(_EMPTY)
        wanted = set(empty.execute("SELECT sql FROM sqlite_schema"))
    if not is_whole or found != _FORMAT or tables != wanted:
        raise ValueError(
            f"This is no export of an account in format {_FORMAT}, or it is damaged. Export it "
            f"again with this version of the emulator."
        )


def _made(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # items are for this user alone
    return directory
