"""Users, their permissions, and the tokens that open what a permission names.

A token carries the id of its permission and when it expires, signed with the master key. It is
kept nowhere: a permission that is deleted or changed changes what its tokens open.
"""

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from cosmos_emulator import rids
from cosmos_emulator.containers import Database, new_etag
from cosmos_emulator.definitions import checked_id
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.store import Row, Store

_COLUMNS: Final = "SELECT rid, id, ts, etag, definition FROM principals WHERE parent = ? "


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a permission allows, on which resource; of one partition key, if it says so."""

    permission_mode: Literal["Read", "All"]
    resource: str
    resource_partition_key: list[object] | None = None

    def is_of_same(self, other: "Definition") -> bool:
        mine, others = self.resource.strip("/"), other.resource.strip("/")
        return mine == others and self.resource_partition_key == other.resource_partition_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A user of a database, or a permission of a user, which has a definition."""

    rid: str
    id: str
    ts: int
    etag: str
    link: str
    definition: Definition | None

    def resource(self) -> JsonObject:
        body: JsonObject = {
            "id": self.id,
            "_rid": self.rid,
            "_self": self.link,
            "_etag": self.etag,
            "_ts": self.ts,
        }
        if self.definition is None:
            return body | {"_permissions": "permissions/"}
        allowed: JsonObject = msgspec.to_builtins(self.definition)
        return allowed | body


class Principals:
    """The users of databases, and their permissions: children of users, by resource id."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def users(self, database: Database) -> list[Principal]:
        return self._children(database.rid, f"{database.link}users/")

    def permissions(self, user: Principal) -> list[Principal]:
        return self._children(user.rid, f"{user.link}permissions/")

    def user(self, database: Database, name: str) -> Principal:
        return _named(self.users(database), name, "user")

    def permission(self, user: Principal, name: str) -> Principal:
        return _named(self.permissions(user), name, "permission")

    def put_user(
        self, database: Database, body: JsonObject, old: Principal | None
    ) -> Principal:
        """Create a user, or give one another name."""
        name = _free_name(body, self.users(database), old)
        rid = rids.new_user_rid(database.rid) if old is None else old.rid
        self._put(rid, database.rid, name, None)
        return self.user(database, name)

    def put_permission(
        self, user: Principal, body: JsonObject, old: Principal | None
    ) -> Principal:
        """Create a permission, or replace one; 409 if the user has one of the same."""
        there, allowed = self.permissions(user), _definition(body)
        name = _free_name(body, there, old)
        others = [x for x in there if old is None or x.rid != old.rid]
        if any(x.definition and x.definition.is_of_same(allowed) for x in others):
            raise CosmosError(
                409, f"The user has a permission of {allowed.resource!r} already: replace it."
            )
        rid = rids.new_permission_rid(user.rid) if old is None else old.rid
        self._put(rid, user.rid, name, allowed)
        return self.permission(user, name)

    def delete(self, found: Principal) -> None:
        with self._store.transaction():
            self._store.run("DELETE FROM principals WHERE parent = ?", (found.rid,))
            self._store.run("DELETE FROM principals WHERE rid = ?", (found.rid,))

    def definition(self, rid: str) -> Definition | None:
        """Return what a permission allows by now, if it is there."""
        row = self._store.row("SELECT definition FROM principals WHERE rid = ?", (rid,))
        return None if row is None or row[0] is None else _decoded(row[0])

    def _children(self, parent: str, link: str) -> list[Principal]:
        rows = self._store.rows(_COLUMNS + "ORDER BY id", (parent,))
        return [_principal(x, link) for x in rows]

    def _put(self, rid: str, parent: str, name: str, allowed: Definition | None) -> None:
        kept = None if allowed is None else msgspec.json.encode(allowed)
        self._store.run(
            "INSERT OR REPLACE INTO principals (rid, parent, id, ts, etag, definition) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (rid, parent, name, int(self._clock()), new_etag(), kept),
        )


def _free_name(body: JsonObject, there: list[Principal], old: Principal | None) -> str:
    """Return the id that a body gives; 409 if another one has it."""
    name = checked_id(body.get("id"))
    if any(x.id == name and (old is None or x.rid != old.rid) for x in there):
        raise CosmosError(409, f"There is a resource {name!r} here already.")
    return name


def token_for(permission: Principal, key: bytes, expires: int) -> str:
    """Return the token of a permission, which opens it until a time of day."""
    claims = base64.urlsafe_b64encode(f"{permission.rid} {expires}".encode()).decode()
    return f"type=resource&ver=1&sig={_signature(key, claims)};{claims};"


def opened_by(token: str, key: bytes, now: float) -> str:
    """Return the resource id of the permission that a token is of.

    Raises 401 for a token that was not made here, and 403 for one whose time is over.
    """
    signature, _, claims = token.partition("sig=")[2].strip(";").partition(";")
    if not hmac.compare_digest(signature.encode(), _signature(key, claims).encode()):
        raise CosmosError(401, "The resource token was not made with the key of this account.")
    try:
        rid, _, expires = base64.urlsafe_b64decode(claims).decode().partition(" ")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise CosmosError(401, "The resource token cannot be read.") from error
    if int(expires) <= now:
        raise CosmosError(403, "The resource token has expired. Read its permission again.")
    return rid


def _signature(key: bytes, claims: str) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, claims.encode(), "sha256")).decode()


def _definition(body: JsonObject) -> Definition:
    """Read what a permission allows; 400 if it is none. The mode may be in any case."""
    mode = body.get("permissionMode")
    if isinstance(mode, str):
        body = body | {"permissionMode": mode.capitalize()}
    try:
        return msgspec.convert(body, Definition)
    except msgspec.ValidationError as error:
        raise bad_request(f"This is no permission: {error}.") from error


def _decoded(text: bytes) -> Definition:
    return msgspec.json.decode(text, type=Definition)


def _principal(row: Row, link: str) -> Principal:
    rid, name, ts, etag, kept = row
    allowed = None if kept is None else _decoded(kept)
    made = f"{link}{rid}/"
    return Principal(rid=rid, id=name, ts=ts, etag=etag, link=made, definition=allowed)


def _named(there: list[Principal], name: str, kind: str) -> Principal:
    for found in there:
        if name in (found.id, found.rid):
            return found
    raise CosmosError(404, f"There is no {kind} {name!r}.")
