"""What a script writes, apart from the account until the script has ended well.

A draft is a small store in memory, for the thread that runs the script. It begins with the
range of one partition key, and takes each item over when the script first names it, so that the
account's own code reads and writes there. At the end all changes go to the account in one
transaction, under one LSN. If an item that the script has seen changed meanwhile, nothing does.

Others wait for that transaction, so its statements are made before it, in the thread.
"""

import heapq
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from cosmos_emulator.calls import Emulator
from cosmos_emulator.containers import Container
from cosmos_emulator.items import Item, Items, Transaction, Written
from cosmos_emulator.partition_keys import PartitionKey
from cosmos_emulator.query.run import Scope
from cosmos_emulator.ranges import PhysicalRange, Ranges
from cosmos_emulator.store import Row, Store
from cosmos_emulator.work import Ask

_OF_KEY: Final = "FROM items WHERE container = ? AND epk = ? AND pk = ? "
_OF_ITEMS: Final = "number, container, epk, pk, id, seq, ts, etag, ttl, expires, body"
_OF_LOG: Final = "seq, epk, operation, pk, id, crts, previous, expired, body"
"""What a row has in a draft as in the account; its range and LSN are those of the commit."""
_CHANGED: Final = f"SELECT {_OF_ITEMS} FROM items WHERE id IN (SELECT id FROM log)"  # noqa: S608
_LOG: Final = f"SELECT {_OF_LOG} FROM log ORDER BY seq"  # noqa: S608
_CHANGED_VALUES: Final = (
    "SELECT * FROM unique_values WHERE number IN "
    "(SELECT number FROM items WHERE id IN (SELECT id FROM log))"
)
_ROWS_AT_ONCE: Final = 1_000
_ID_IN_LOG: Final = 4


class DraftOutdated(Exception):
    """An item that the script has seen is another by now: run the script again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writes:
    """What a script has written, as rows; ``old`` has the numbers of the items before."""

    old: Sequence[Row]
    items: Sequence[Row]
    log: Sequence[Row]
    values: Sequence[Row]
    added: tuple[int, int]  # items and bytes


class Draft:
    """The items of one partition key, as a script sees and changes them."""

    def __init__(
        self, emulator: Emulator, container: Container, key: PartitionKey, ask: Ask
    ) -> None:
        self._account = emulator
        self._container = container
        self._key = key
        self._ask = ask
        self._store = emulator.store.in_memory()
        self._ranges = Ranges(self._store)
        self._of_key = (container.number, key.epk, key.text)
        self._seen: dict[str, Item | None] = {}  # as they were in the account
        self._numbers: set[int] = set()  # of those that were there
        self.items = Items(self._store, self._ranges, emulator.clock)
        self._begin()

    def _begin(self) -> None:
        """Take over the range, and which values are taken."""

        def found() -> tuple[list[Row], list[Row]]:
            store, number = self._account.store, self._container.number
            pid = self._account.ranges.holding(number, self._key.epk).pid
            values = "SELECT * FROM unique_values WHERE container = ? AND pk = ?"
            return (
                list(store.rows("SELECT * FROM ranges WHERE pid = ?", (pid,))),
                list(store.rows(values, (number, self._key.text))),
            )

        ranges, values = self._ask(found)
        _insert(self._store, "ranges", ranges)
        _insert(self._store, "unique_values", values)
        self._before = self._held()

    def close(self) -> None:
        self._store.close()

    def write(self, act: Callable[[Transaction], Written]) -> Written:
        """Do one write here, whole or not at all."""
        with self._store.transaction():
            return act(Transaction(self._ranges))

    def take(self, names: Iterable[str]) -> None:
        """Take items over that the script is about to name."""
        new = [x for x in dict.fromkeys(names) if x not in self._seen]
        for some in _parts(new):
            rows = self._ask(partial(self._stored, "*", some))
            _insert(self._store, "items", rows)
            self._numbers.update(x[0] for x in rows)
            for name in some:
                self._seen[name] = self.items.find(self._container, self._key, name)

    def _stored(self, columns: str, names: Sequence[str]) -> list[Row]:
        """Return what the account has of some items, by one statement."""
        query = f"SELECT {columns} {_OF_KEY}AND id IN ({_places(names)})"
        return list(self._account.store.rows(query, (*self._of_key, *names)))

    def find(self, name: str) -> Item | None:
        self.take([name])
        return self.items.find(self._container, self._key, name)

    def name_of(self, number: int) -> str | None:
        """Return the id of an item of this key by its number."""
        query, values = f"SELECT id {_OF_KEY}AND number = ?", (*self._of_key, number)
        row = self._store.row(query, values)
        row = row or self._ask(lambda: self._account.store.row(query, values))
        return None if row is None else str(row[0])

    def rows(self, after: int) -> Iterator[Row]:
        """Give (number, JSON text) of all items of the key above a number, for a query."""
        mine = self._store.rows(
            f"SELECT number, body {_OF_KEY}AND number > ? ORDER BY number",
            (*self._of_key, after),
        )
        return heapq.merge(self._others(after), list(mine), key=itemgetter(0))

    def _others(self, after: int) -> Iterator[Row]:
        scope = Scope(container=self._container.number, key=self._key)
        while True:
            found = self._ask(partial(scope.rows, self._account.store, after, _ROWS_AT_ONCE))
            yield from (x for x in found if x[0] not in self._numbers)
            if len(found) < _ROWS_AT_ONCE:
                return
            after = found[-1][0]

    def commit(self) -> PhysicalRange:
        """Write all changes to the account, or raise ``DraftOutdated``; return their range."""
        log = list(self._store.rows(_LOG))
        if not log:
            return self._ask(self._held_now)
        held, changed = self._held(), {x[_ID_IN_LOG] for x in log}
        writes = _Writes(
            old=[(y.number,) for x in changed if (y := self._seen[x]) is not None],
            items=list(self._store.rows(_CHANGED)),
            log=log,
            values=list(self._store.rows(_CHANGED_VALUES)),
            added=(held.items - self._before.items, held.bytes - self._before.bytes),
        )
        return self._ask(lambda: self._commit(writes))

    def _commit(self, writes: _Writes) -> PhysicalRange:
        store, pid = self._account.store, self._held_now().pid
        with store.transaction():
            self._check_unchanged()
            store.run_many("DELETE FROM items WHERE number = ?", writes.old)
            store.run_many("DELETE FROM unique_values WHERE number = ?", writes.old)
            items, size = writes.added
            lsn = self._account.ranges.advance(pid, items=items, size=size)
            place = f", {pid}, {lsn}"
            _insert(store, f"items ({_OF_ITEMS}, pid, lsn)", writes.items, place)
            _insert(store, f"log ({_OF_LOG}, pid, lsn)", writes.log, place)
            try:
                _insert(store, "unique_values", writes.values)
            except sqlite3.IntegrityError as error:
                raise DraftOutdated from error
        return self._held_now()

    def _check_unchanged(self) -> None:
        """Raise unless each item that was seen is as it was."""
        for some in _parts(self._seen):
            found: dict[str, str] = dict(self._stored("id, etag", some))
            for name in some:
                seen = self._seen[name]
                if found.get(name) != (seen and seen.etag):
                    raise DraftOutdated

    def _held(self) -> PhysicalRange:
        return self._ranges.holding(self._container.number, self._key.epk)

    def _held_now(self) -> PhysicalRange:
        return self._account.ranges.holding(self._container.number, self._key.epk)


def _insert(store: Store, table: str, rows: Sequence[Row], more: str = "") -> None:
    if rows:
        statement = f"INSERT INTO {table} VALUES ({_places(rows[0])}{more})"  # noqa: S608 - ours
        store.run_many(statement, rows)


def _parts(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(itertools.islice(left, _ROWS_AT_ONCE)):
        yield some


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
