"""Stored procedures, triggers and user-defined functions, as a container keeps them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

import msgspec

from cosmos_emulator import rids
from cosmos_emulator.containers import Container, new_etag
from cosmos_emulator.definitions import checked_id
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.store import Row, Store

_COLUMNS: Final = "SELECT rid, id, ts, etag, definition FROM scripts WHERE container = ? "


class ScriptKind(Enum):
    """What a script is: its name in operations, in paths, in lists, and the byte in its rid."""

    PROCEDURE = ("stored_procedure", "sprocs", "StoredProcedures", 8)
    TRIGGER = ("trigger", "triggers", "Triggers", 7)
    FUNCTION = ("user_defined_function", "udfs", "UserDefinedFunctions", 6)

    def __init__(self, noun: str, path: str, listed: str, type_bits: int) -> None:
        self.noun = noun
        self.path = path
        self.listed = listed
        self.type_bits = type_bits

    @property
    def words(self) -> str:
        return self.noun.replace("user_", "user-").replace("_", " ")


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a script runs; of a trigger also before or after which operations."""

    body: str
    trigger_type: Literal["Pre", "Post"] | None = None
    trigger_operation: (
        Literal["All", "Create", "Update", "Delete", "Replace", "Upsert"] | None
    ) = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script as it is kept."""

    rid: str
    id: str
    ts: int
    etag: str
    link: str
    definition: Definition

    @property
    def body(self) -> str:
        return self.definition.body

    def resource(self) -> JsonObject:
        shown: JsonObject = msgspec.to_builtins(self.definition)
        return shown | {
            "id": self.id,
            "_rid": self.rid,
            "_self": self.link,
            "_etag": self.etag,
            "_ts": self.ts,
        }


class Scripts:
    """The scripts of every container. Names and resource ids both find them."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def all(self, container: Container, kind: ScriptKind) -> list[Script]:
        rows = self._store.rows(
            _COLUMNS + "AND kind = ? ORDER BY id", (container.number, kind.noun)
        )
        return [_script(x, container, kind) for x in rows]

    def named(self, container: Container, kind: ScriptKind, name: str) -> Script:
        row = self._store.row(
            _COLUMNS + "AND kind = ? AND (id = ? OR rid = ?)",
            (container.number, kind.noun, name, name),
        )
        if row is None:
            raise CosmosError(
                404, f"There is no {kind.words} {name!r} in the container {container.id!r}."
            )
        return _script(row, container, kind)

    def put(
        self, container: Container, kind: ScriptKind, body: JsonObject, old: Script | None
    ) -> Script:
        """Create a script, or replace one; 409 if another one has its id."""
        name, definition = checked_id(body.get("id")), _checked(body, kind)
        taken = self._store.row(
            "SELECT rid FROM scripts WHERE container = ? AND kind = ? AND id = ?",
            (container.number, kind.noun, name),
        )
        if taken is not None and (old is None or taken[0] != old.rid):
            raise CosmosError(409, f"There is a {kind.words} {name!r} here already.")
        rid = rids.new_script_rid(container.rid, kind.type_bits) if old is None else old.rid
        self._store.run(
            "INSERT OR REPLACE INTO scripts (rid, container, kind, id, ts, etag, definition) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                rid,
                container.number,
                kind.noun,
                name,
                int(self._clock()),
                new_etag(),
                msgspec.json.encode(definition),
            ),
        )
        return self.named(container, kind, rid)

    def delete(self, script: Script) -> None:
        self._store.run("DELETE FROM scripts WHERE rid = ?", (script.rid,))


def _checked(body: JsonObject, kind: ScriptKind) -> Definition:
    try:
        found = msgspec.convert(body, Definition)
    except msgspec.ValidationError as error:
        raise bad_request(f"This is no {kind.words}: {error}.") from error
    if kind is not ScriptKind.TRIGGER:
        return Definition(body=found.body)
    if found.trigger_type is None or found.trigger_operation is None:
        raise bad_request(
            "A trigger has a triggerType (Pre, Post) and a triggerOperation (All, Create, "
            "Replace, Update, Upsert, Delete)."
        )
    return found


def _script(row: Row, container: Container, kind: ScriptKind) -> Script:
    rid, name, ts, etag, text = row
    return Script(
        rid=rid,
        id=name,
        ts=ts,
        etag=etag,
        link=f"{container.link}{kind.path}/{rid}/",
        definition=msgspec.json.decode(text, type=Definition),
    )
