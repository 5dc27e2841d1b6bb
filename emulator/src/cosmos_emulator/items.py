"""Items: one row for each item as it is, one row in the log for each version it had.

The stored text is what a client gets, with the system properties spliced in when it was
written; only ``_lsn`` is added on the way out of a feed. Writes are made inside a
transaction of the store, and all writes of one transaction share one LSN.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cosmos_emulator import charges, rids
from cosmos_emulator.conditions import Conditions
from cosmos_emulator.containers import Container, new_etag
from cosmos_emulator.definitions import MAX_TTL, check_size, checked_item_id
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject, decoded_object
from cosmos_emulator.partition_keys import PartitionKey, check_same_container
from cosmos_emulator.ranges import Ranges
from cosmos_emulator.store import Row, Store
from cosmos_emulator.unique_keys import UniqueKeys

SYSTEM_PROPERTIES: Final = ("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")
_DELETED_AT_ONCE: Final = 100  # within a few milliseconds
_COLUMNS: Final = (
    "SELECT number, pid, epk, pk, id, lsn, seq, ts, etag, ttl, expires, body FROM items "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item as it is stored. ``body`` is its JSON text with all but ``_lsn``."""

    number: int
    pid: int
    epk: str
    pk: str
    id: str
    lsn: int
    seq: int
    ts: int
    etag: str
    ttl: int | None
    expires: int | None
    body: bytes

    def value(self) -> JsonObject:
        return decoded_object(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write did. ``item`` is ``None`` after a delete."""

    item: Item | None
    created: bool
    charge: float


class Transaction:
    """The LSNs of one transaction of the store: one for each range it writes to."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._lsns: dict[int, int] = {}

    def lsn(self, pid: int, *, items: int, size: int) -> int:
        """Return the LSN of this transaction in a range, counting what it adds there."""
        if pid in self._lsns:
            self._ranges.count(pid, items=items, size=size)
        else:
            self._lsns[pid] = self._ranges.advance(pid, items=items, size=size)
        return self._lsns[pid]


class Items:
    """Reads and writes items. Every write needs a ``Transaction`` that has begun."""

    def __init__(self, store: Store, ranges: Ranges, clock: Callable[[], float]) -> None:
        self._store = store
        self._ranges = ranges
        self._clock = clock
        self._unique = UniqueKeys(store)

    def find(self, container: Container, key: PartitionKey, name: str) -> Item | None:
        row = self._store.row(
            _COLUMNS + "WHERE container = ? AND epk = ? AND pk = ? AND id = ?",
            (container.number, key.epk, key.text, name),
        )
        return None if row is None else _item(row)

    def read(self, container: Container, key: PartitionKey, name: str) -> Item:
        found = self.find(container, key, name) or self._by_rid(container, key, name)
        if found is None:
            raise CosmosError(
                404, f"There is no item {name!r} with the partition key {key.text}."
            )
        return found

    def _by_rid(self, container: Container, key: PartitionKey, rid: str) -> Item | None:
        number = rids.item_number(container.rid, rid)
        row = self._store.row(
            _COLUMNS + "WHERE number = ? AND epk = ? AND pk = ?", (number, key.epk, key.text)
        )
        return None if row is None else _item(row)

    def create(
        self, tx: Transaction, container: Container, key: PartitionKey, body: JsonObject
    ) -> Written:
        name = checked_item_id(body.get("id"))
        if self.find(container, key, name):
            raise CosmosError(409, f"There is an item {name!r} in {key.text} already.")
        return self._put(tx, container, key, body, None)

    def upsert(
        self,
        tx: Transaction,
        container: Container,
        key: PartitionKey,
        body: JsonObject,
        conditions: Conditions,
    ) -> Written:
        before = self.find(container, key, checked_item_id(body.get("id")))
        if before is not None:  # an insert has no etag to compare
            conditions.check_write(before.etag)
        return self._put(tx, container, key, body, before)

    def replace(
        self,
        tx: Transaction,
        container: Container,
        key: PartitionKey,
        name: str,
        *,
        change: Callable[[Item], JsonObject],
        conditions: Conditions,
    ) -> Written:
        """Write what ``change`` makes of the stored item, under the same key."""
        before = self.read(container, key, name)
        conditions.check_write(before.etag)
        body = change(before)
        renamed = checked_item_id(body.get("id"))
        if renamed != before.id and self.find(container, key, renamed):
            raise CosmosError(409, f"There is an item {renamed!r} in {key.text} already.")
        return self._put(tx, container, key, body, before)

    def delete(
        self,
        tx: Transaction,
        container: Container,
        key: PartitionKey,
        name: str,
        conditions: Conditions,
    ) -> Written:
        before = self.read(container, key, name)
        conditions.check_write(before.etag)
        self._remove(tx, container, before, expired=False)
        indexed = container.indexed.count(before.value())
        return Written(
            item=None, created=False, charge=charges.write(len(before.body), indexed)
        )

    async def expire(self, container: Container) -> None:
        """Delete what is past its time to live.

        Called before every request on a container with a TTL, so that no client sees an
        expired item; its delete is dated to that request.
        """
        due = "container = ? AND expires <= ? ORDER BY expires, number"
        values = (container.number, int(self._clock()))
        await self._remove_all(container, due, values, expired=True)

    async def delete_all(self, container: Container, key: PartitionKey) -> None:
        """Delete all items of a partition key that are there now."""
        mine = "container = ? AND epk = ? AND pk = ? AND seq < ?"
        values = (container.number, key.epk, key.text, self._store.next_number())
        await self._remove_all(container, mine, values, expired=False)

    async def _remove_all(
        self, container: Container, which: str, values: Row, *, expired: bool
    ) -> None:
        """Delete each item in a transaction of its own; others have their turn in between.

        They come in the order of an index: nothing has to look at all of them at once.
        """
        text = f"{_COLUMNS}WHERE {which} LIMIT {_DELETED_AT_ONCE}"
        while found := list(self._store.rows(text, values)):
            for row in found:
                with self._store.transaction():
                    self._remove(
                        Transaction(self._ranges), container, _item(row), expired=expired
                    )
            if len(found) < _DELETED_AT_ONCE:
                return
            await asyncio.sleep(0)

    def _put(
        self,
        tx: Transaction,
        container: Container,
        key: PartitionKey,
        body: JsonObject,
        before: Item | None,
    ) -> Written:
        check_same_container(key, container.keys.in_item(body))
        held = self._ranges.holding(container.number, key.epk)
        seq, ts = self._store.next_number(), int(self._clock())
        number = before.number if before else seq
        etag, ttl = new_etag(), _checked_ttl(body)
        self._unique.take(container, key, number, body)
        rid = rids.item_rid(container.rid, number)
        text = _text(body, rid=rid, link=container.link, etag=etag, ts=ts)
        check_size(len(text))
        grown = len(text) - (len(before.body) if before else 0)
        item = Item(
            number=number,
            pid=held.pid,
            epk=key.epk,
            pk=key.text,
            id=body["id"],
            lsn=tx.lsn(held.pid, items=0 if before else 1, size=grown),
            seq=seq,
            ts=ts,
            etag=etag,
            ttl=ttl,
            expires=_expiry(ts, ttl, container.default_ttl),
            body=text,
        )
        self._store_item(container, item, before)
        indexed = container.indexed.count(body)
        price = charges.replace if before else charges.write
        return Written(item=item, created=before is None, charge=price(len(text), indexed))

    def _store_item(self, container: Container, item: Item, before: Item | None) -> None:
        self._store.run(
            "INSERT OR REPLACE INTO items (number, container, pid, epk, pk, id, lsn, seq, ts, "
            "etag, ttl, expires, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                item.number,
                container.number,
                item.pid,
                item.epk,
                item.pk,
                item.id,
                item.lsn,
                item.seq,
                item.ts,
                item.etag,
                item.ttl,
                item.expires,
                item.body,
            ),
        )
        self._log(
            item,
            operation="replace" if before else "create",
            seq=item.seq,
            lsn=item.lsn,
            previous=before.seq if before else None,
            body=item.body,
        )

    def _remove(
        self, tx: Transaction, container: Container, before: Item, *, expired: bool
    ) -> None:
        self._unique.give_back(container, before.number)
        self._store.run("DELETE FROM items WHERE number = ?", (before.number,))
        self._log(
            before,
            operation="delete",
            seq=self._store.next_number(),
            lsn=tx.lsn(before.pid, items=-1, size=-len(before.body)),
            previous=before.seq,
            body=None,
            expired=expired,
        )

    def _log(
        self,
        item: Item,
        *,
        operation: str,
        seq: int,
        lsn: int,
        previous: int | None,
        body: bytes | None,
        expired: bool = False,
    ) -> None:
        self._store.run(
            "INSERT INTO log (seq, pid, lsn, epk, operation, pk, id, crts, previous, expired, "
            "body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                seq,
                item.pid,
                lsn,
                item.epk,
                operation,
                item.pk,
                item.id,
                int(self._clock()),
                previous,
                expired,
                body,
            ),
        )


def replaced_by(body: JsonObject) -> Callable[[Item], JsonObject]:
    """Return the change that puts a body in the place of whatever is there."""
    return lambda _: body


def _item(row: Row) -> Item:
    number, pid, epk, pk, name, lsn, seq, ts, etag, ttl, expires, body = row
    return Item(
        number=number,
        pid=pid,
        epk=epk,
        pk=pk,
        id=name,
        lsn=lsn,
        seq=seq,
        ts=ts,
        etag=etag,
        ttl=ttl,
        expires=expires,
        body=body,
    )


def _checked_ttl(body: JsonObject) -> int | None:
    ttl: Any = body.get("ttl")
    if ttl is None:
        return None
    if (
        not isinstance(ttl, int)
        or isinstance(ttl, bool)
        or not (ttl == -1 or 0 < ttl <= MAX_TTL)
    ):
        raise bad_request(
            f"The ttl of an item must be -1 or a number of seconds from 1 to {MAX_TTL}."
        )
    return ttl


def _expiry(ts: int, ttl: int | None, default: int | None) -> int | None:
    """Return when an item expires; a container without a default TTL ignores its own."""
    seconds = default if ttl is None else ttl
    return None if default is None or seconds is None or seconds == -1 else ts + seconds


def _text(body: JsonObject, *, rid: str, link: str, etag: str, ts: int) -> bytes:
    """Return the text of an item with fresh system properties in the place of sent ones."""
    if not body.keys().isdisjoint(SYSTEM_PROPERTIES):
        body = {k: v for k, v in body.items() if k not in SYSTEM_PROPERTIES}
    system = {
        "_rid": rid,
        "_self": f"{link}docs/{rid}/",
        "_etag": etag,
        "_attachments": "attachments/",
        "_ts": ts,
    }
    return msgspec.json.encode(body)[:-1] + b"," + msgspec.json.encode(system)[1:]
