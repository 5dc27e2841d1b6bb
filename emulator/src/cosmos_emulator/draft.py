"""What a script writes, apart from the account until the script has ended well.

A draft is a small store in memory, for the thread that runs the script. It begins with the
range of one partition key, and takes each item over when the script first names it, so that the
account's own code reads and writes there. At the end all changes go to the account in one
transaction, under one LSN. If an item that the script has seen changed meanwhile, nothing does.
"""

import heapq
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Final

from cosmos_emulator.calls import Emulator
from cosmos_emulator.containers import Container
from cosmos_emulator.items import Item, Items, Transaction, Written
from cosmos_emulator.partition_keys import PartitionKey
from cosmos_emulator.query.run import Scope
from cosmos_emulator.ranges import PhysicalRange, Ranges
from cosmos_emulator.store import Row, Store
from cosmos_emulator.work import Ask

_OF_KEY: Final = "FROM items WHERE container = ? AND epk = ? AND pk = ? "
_CHANGED: Final = "SELECT * FROM items WHERE id IN (SELECT id FROM log)"
_CHANGED_VALUES: Final = (
    "SELECT * FROM unique_values WHERE number IN "
    "(SELECT number FROM items WHERE id IN (SELECT id FROM log))"
)
_ROWS_AT_ONCE: Final = 1_000
_PID, _LSN = 2, 6
"""Where a row of items has its range and LSN."""
_LOG_PID, _LOG_LSN, _LOG_ID = 1, 2, 6
"""Where a row of the log has its range, LSN and id."""


class DraftOutdated(Exception):
    """An item that the script has seen is another by now: run the script again."""


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
        if not new:
            return

        def found() -> list[Row | None]:
            query = f"SELECT * {_OF_KEY}AND id = ?"
            return [self._account.store.row(query, (*self._of_key, x)) for x in new]

        for name, row in zip(new, self._ask(found), strict=True):
            if row is not None:
                _insert(self._store, "items", [row])
                self._numbers.add(row[0])
            self._seen[name] = self.items.find(self._container, self._key, name)

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
        log = list(self._store.rows("SELECT * FROM log ORDER BY seq"))
        if not log:
            return self._ask(self._held_now)
        items = list(self._store.rows(_CHANGED))
        values = list(self._store.rows(_CHANGED_VALUES))
        held = self._held()
        added = held.items - self._before.items, held.bytes - self._before.bytes
        return self._ask(lambda: self._commit(items, log, values, added))

    def _commit(
        self, items: list[Row], log: list[Row], values: list[Row], added: tuple[int, int]
    ) -> PhysicalRange:
        store, pid = self._account.store, self._held_now().pid
        old = [x for name in {x[_LOG_ID] for x in log} if (x := self._seen[name]) is not None]
        with store.transaction():
            self._check_unchanged()
            numbers = [(x.number,) for x in old]
            store.run_many("DELETE FROM items WHERE number = ?", numbers)
            store.run_many("DELETE FROM unique_values WHERE number = ?", numbers)
            lsn = self._account.ranges.advance(pid, items=added[0], size=added[1])
            _insert(store, "items", [_moved(x, {_PID: pid, _LSN: lsn}) for x in items])
            _insert(store, "log", [_moved(x, {_LOG_PID: pid, _LOG_LSN: lsn}) for x in log])
            try:
                _insert(store, "unique_values", values)
            except sqlite3.IntegrityError as error:
                raise DraftOutdated from error
        return self._held_now()

    def _check_unchanged(self) -> None:
        query = f"SELECT etag {_OF_KEY}AND id = ?"
        for name, item in self._seen.items():
            row = self._account.store.row(query, (*self._of_key, name))
            if (row and row[0]) != (item and item.etag):
                raise DraftOutdated

    def _held(self) -> PhysicalRange:
        return self._ranges.holding(self._container.number, self._key.epk)

    def _held_now(self) -> PhysicalRange:
        return self._account.ranges.holding(self._container.number, self._key.epk)


def _insert(store: Store, table: str, rows: list[Row]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        store.run_many(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - ours


def _moved(row: Row, changes: dict[int, int]) -> Row:
    """Return a row with other values at some places."""
    return tuple(changes.get(i, x) for i, x in enumerate(row))
