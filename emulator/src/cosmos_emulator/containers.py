"""Databases and containers: what they are called, and what a container promises."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from cosmos_emulator import rids
from cosmos_emulator.charges import IndexedPaths, indexed_paths
from cosmos_emulator.definitions import checked_container, checked_id, unique_paths
from cosmos_emulator.errors import OWNER_NOT_FOUND, CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.offers import Offers, Throughput
from cosmos_emulator.partition_keys import KeyDefinition
from cosmos_emulator.policies import check_replaced, policies_of
from cosmos_emulator.query.given import ContainerPolicies
from cosmos_emulator.ranges import Ranges
from cosmos_emulator.store import Row, Store

_KEPT: Final = ("partitionKey", "uniqueKeyPolicy")  # also where a client leaves them out
_COLUMNS: Final = "SELECT number, rid, database, id, properties, ts, etag FROM containers "


def new_etag() -> str:
    return f'"{uuid.uuid4()}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    rid: str
    id: str
    ts: int
    etag: str

    @property
    def link(self) -> str:
        return f"dbs/{self.rid}/"

    def resource(self) -> JsonObject:
        return {
            "id": self.id,
            "_rid": self.rid,
            "_self": self.link,
            "_etag": self.etag,
            "_colls": "colls/",
            "_users": "users/",
            "_ts": self.ts,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container, with what every write and read needs of its properties."""

    number: int
    rid: str
    database: str  # its rid
    id: str
    properties: JsonObject
    ts: int
    etag: str
    keys: KeyDefinition
    unique: tuple[tuple[str, ...], ...]
    default_ttl: int | None
    indexed: IndexedPaths
    policies: ContainerPolicies

    @property
    def paths(self) -> tuple[str, ...]:
        return self.keys.paths

    @property
    def link(self) -> str:
        return f"dbs/{self.database}/colls/{self.rid}/"

    def resource(self) -> JsonObject:
        return {
            **self.properties,
            "_rid": self.rid,
            "_self": self.link,
            "_etag": self.etag,
            "_docs": "docs/",
            "_sprocs": "sprocs/",
            "_triggers": "triggers/",
            "_udfs": "udfs/",
            "_conflicts": "conflicts/",
            "_ts": self.ts,
        }


class Containers:
    """Every database and container. Names and resource ids both find them."""

    def __init__(
        self, store: Store, ranges: Ranges, offers: Offers, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._offers = offers
        self._ranges = ranges
        self._clock = clock
        self._cache: dict[tuple[str, str], Container] = {}  # emptied by every change

    def create_database(
        self, body: JsonObject, throughput: Throughput | None = None
    ) -> Database:
        name = checked_id(body.get("id"))
        if self._store.row("SELECT 1 FROM databases WHERE id = ?", (name,)):
            raise CosmosError(409, f"There is a database {name!r} already.")
        made = Database(
            rid=rids.new_database_rid(), id=name, ts=int(self._clock()), etag=new_etag()
        )
        self._store.run(
            "INSERT INTO databases (rid, id, ts, etag) VALUES (?, ?, ?, ?)",
            (made.rid, made.id, made.ts, made.etag),
        )
        if throughput is not None:
            self._offers.create(made.rid, made.link, throughput, new_etag())
        return made

    def databases(self) -> list[Database]:
        found = self._store.rows("SELECT rid, id, ts, etag FROM databases ORDER BY id")
        return [_database(x) for x in found]

    def database(self, name: str) -> Database:
        row = self._store.row(
            "SELECT rid, id, ts, etag FROM databases WHERE id = ? OR rid = ?", (name, name)
        )
        if row is None:
            raise CosmosError(404, f"There is no database {name!r}.")
        return _database(row)

    def delete_database(self, name: str) -> None:
        database = self.database(name)
        with self._store.transaction():
            for container in self.containers(name):
                self._remove(container)
            self._store.run("DELETE FROM offers WHERE owner = ?", (database.rid,))
            self._store.run(
                "DELETE FROM principals WHERE parent = ? OR parent IN "
                "(SELECT rid FROM principals WHERE parent = ?)",
                (database.rid, database.rid),
            )
            self._store.run("DELETE FROM databases WHERE rid = ?", (database.rid,))
        self._cache.clear()

    def create_container(
        self, database: str, body: JsonObject, throughput: Throughput | None = None
    ) -> Container:
        """Make a container; every 6,000 RU/s of throughput give it one more range.

        Without a throughput it shares its database's, or has the least.
        """
        owner = self._owner(database)
        properties = checked_container(body)
        if throughput is None and self._offers.of(owner.rid) is None:
            throughput = Throughput()
        taken = "SELECT 1 FROM containers WHERE database = ? AND id = ?"
        if self._store.row(taken, (owner.rid, properties["id"])):
            raise CosmosError(409, f"There is a container {properties['id']!r} already.")
        rid = rids.new_container_rid(owner.rid)
        with self._store.transaction():
            row = self._store.row(
                "INSERT INTO containers (rid, database, id, properties, ts, etag, topology, "
                "next_range) VALUES (?, ?, ?, ?, ?, ?, 0, 0) RETURNING number",
                (
                    rid,
                    owner.rid,
                    properties["id"],
                    msgspec.json.encode(properties),
                    int(self._clock()),
                    new_etag(),
                ),
            )
            assert row is not None
            hashing = KeyDefinition.of(properties["partitionKey"]).hashing
            self._ranges.create(row[0], throughput.ranges if throughput else 1, hashing)
            if throughput is not None:
                link = f"{owner.link}colls/{rid}/"
                self._offers.create(rid, link, throughput, new_etag())
        self._cache.clear()
        return self.container(database, properties["id"])

    def containers(self, database: str) -> list[Container]:
        owner = self._owner(database)
        found = self._store.rows(_COLUMNS + "WHERE database = ? ORDER BY id", (owner.rid,))
        return [_container(x) for x in found]

    def container(self, database: str, name: str) -> Container:
        """Return a container; 404 if it is not there, 404/1003 if its database is not."""
        found = self._cache.get((database, name))
        if found is None:
            owner = self._owner(database)
            row = self._store.row(
                _COLUMNS + "WHERE database = ? AND (id = ? OR rid = ?)",
                (owner.rid, name, name),
            )
            if row is None:
                raise CosmosError(404, f"There is no container {name!r} in {owner.id!r}.")
            found = self._cache[database, name] = _container(row)
        return found

    def of_rid(self, rid: str) -> Container | None:
        row = self._store.row(_COLUMNS + "WHERE rid = ?", (rid,))
        return None if row is None else _container(row)

    def replace_container(self, old: Container, body: JsonObject) -> Container:
        """Change a container's properties; its id and partition key stay."""
        kept = {x: old.properties[x] for x in _KEPT if x in old.properties} | body
        if isinstance(kept["partitionKey"], dict):
            kept["partitionKey"] = old.properties["partitionKey"] | kept["partitionKey"]
        properties = checked_container(kept)
        for name in ("id", "partitionKey"):
            if properties[name] != old.properties[name]:
                raise bad_request(f"The {name} of a container cannot be changed.")
        if unique_paths(properties) != old.unique:
            raise bad_request("The uniqueKeyPolicy of a container cannot be changed.")
        check_replaced(old.properties, properties)
        with self._store.transaction():
            self._store.run(
                "UPDATE containers SET properties = ?, ts = ?, etag = ? WHERE number = ?",
                (msgspec.json.encode(properties), int(self._clock()), new_etag(), old.number),
            )
            self._retime(old.number, properties.get("defaultTtl"))
        self._cache.clear()
        row = self._store.row(_COLUMNS + "WHERE number = ?", (old.number,))
        assert row is not None
        return _container(row)

    def delete_container(self, container: Container) -> None:
        with self._store.transaction():
            self._remove(container)
        self._cache.clear()

    def forget(self) -> None:
        """Read everything again: the store has changed."""
        self._cache.clear()

    def _owner(self, database: str) -> Database:
        try:
            return self.database(database)
        except CosmosError as error:
            raise CosmosError(404, error.message, OWNER_NOT_FOUND) from None

    def _retime(self, number: int, default_ttl: int | None) -> None:
        """Let every item expire by a new default; its own ``ttl`` comes first."""
        self._store.run(
            "UPDATE items SET expires = CASE WHEN ? IS NULL OR coalesce(ttl, ?) = -1 THEN NULL "
            "ELSE ts + coalesce(ttl, ?) END WHERE container = ?",
            (default_ttl, default_ttl, default_ttl, number),
        )

    def _remove(self, container: Container) -> None:
        for statement in (
            "DELETE FROM items WHERE container = ?",
            "DELETE FROM log WHERE pid IN (SELECT pid FROM ranges WHERE container = ?)",
            "DELETE FROM ranges WHERE container = ?",
            "DELETE FROM unique_values WHERE container = ?",
            "DELETE FROM scripts WHERE container = ?",
            "DELETE FROM containers WHERE number = ?",
        ):
            self._store.run(statement, (container.number,))
        self._store.run("DELETE FROM offers WHERE owner = ?", (container.rid,))


def _database(row: Row) -> Database:
    return Database(rid=row[0], id=row[1], ts=row[2], etag=row[3])


def _container(row: Row) -> Container:
    number, rid, database, name, text, ts, etag = row
    properties = msgspec.json.decode(text)
    return Container(
        number=number,
        rid=rid,
        database=database,
        id=name,
        properties=properties,
        ts=ts,
        etag=etag,
        keys=KeyDefinition.of(properties["partitionKey"]),
        unique=unique_paths(properties),
        default_ttl=properties.get("defaultTtl"),
        indexed=indexed_paths(properties["indexingPolicy"]),
        policies=policies_of(properties),
    )
