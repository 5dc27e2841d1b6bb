"""Answers about users and permissions, and what a request with a token may do."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cosmos_emulator.address import Address
from cosmos_emulator.calls import Answer, Call, Emulator, Handler
from cosmos_emulator.containers import Database
from cosmos_emulator.errors import NOT_FOR_ENTRA, CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject, decoded_object
from cosmos_emulator.permissions import Definition, Principal, token_for
from cosmos_emulator.resources import listed, queried

_SECONDS: Final = 3600
_MAX_SECONDS: Final = 86_400
_DIGITS: Final = 9  # no number of seconds has more
_OF_THE_ACCOUNT: Final = frozenset({"read_account"})  # clients ask it for regions
_OF_THE_CONTAINER: Final = frozenset({"read_container", "read_ranges"})  # and it for its paths
_METADATA: Final = (
    _OF_THE_ACCOUNT
    | _OF_THE_CONTAINER
    | {
        *("list_databases", "query_databases", "read_database"),
        *("list_containers", "query_containers"),
    }
)
_READS: Final = frozenset(
    {"read_item", "read_items", "query_items", "query_plan", "change_feed"}
)
_WRITES: Final = frozenset(
    {"create_item", "upsert_item", "replace_item", "patch_item", "delete_item", "batch"}
    | {"delete_items_of_key", "execute_stored_procedure"}
)


def check_entra(address: Address, operation: str) -> None:
    """Raise 403/5300 for what no role of an account allows to Entra: to manage resources."""
    if operation not in _METADATA | _READS | _WRITES:
        raise CosmosError(
            403,
            f"An Entra token does not allow {operation} of /{address.link}: it reads metadata, "
            f"and reads and writes items. Use the master key.",
            NOT_FOR_ENTRA,
        )


def check_allowed(
    emulator: Emulator,
    allowed: Definition | None,
    address: Address,
    operation: str,
    headers: Mapping[str, str],
) -> None:
    """Raise 403 unless a permission covers a request."""
    if operation in _OF_THE_ACCOUNT:
        return
    opens = allowed is not None and _opens(emulator, allowed, address, operation, headers)
    if not opens:
        raise CosmosError(
            403,
            f"The resource token does not allow {operation} of /{address.link}: its permission "
            f"is gone, or is for another resource, key or mode.",
        )


def _opens(
    emulator: Emulator,
    allowed: Definition,
    address: Address,
    operation: str,
    headers: Mapping[str, str],
) -> bool:
    match allowed.resource.strip("/").split("/"):
        case ["dbs", database, "colls", container, *below]:
            if not _is_in(emulator, database, container, address):
                return False
        case _:
            return False
    if operation in _OF_THE_CONTAINER:
        return True
    if operation not in (_READS if allowed.permission_mode == "Read" else _READS | _WRITES):
        return False
    if below and address.ids[2:] != (below[-1],):
        return False
    key = allowed.resource_partition_key
    return key is None or _is_of_key(emulator, key, address, headers)


def _is_in(emulator: Emulator, database: str, container: str, address: Address) -> bool:
    """Return whether an address is a container, or in it; both may be names or ids."""
    if not address.has_container:
        return False
    found = emulator.containers.container(address.database, address.container)
    try:
        return emulator.containers.container(database, container).rid == found.rid
    except CosmosError:  # it is not there any more
        return False


def _is_of_key(
    emulator: Emulator, key: list[object], address: Address, headers: Mapping[str, str]
) -> bool:
    given = headers.get("x-ms-documentdb-partitionkey")
    if given is None:
        return False
    keys = emulator.containers.container(address.database, address.container).keys
    wanted = msgspec.json.encode(key).decode()
    return keys.in_header(given).text == keys.in_header(wanted).text


def list_users(emulator: Emulator, call: Call) -> Answer:
    database = _database(emulator, call)
    found = [x.resource() for x in emulator.principals.users(database)]
    return listed(call, database.rid, "Users", found)


async def query_users(emulator: Emulator, call: Call) -> Answer:
    database = _database(emulator, call)
    found = [x.resource() for x in emulator.principals.users(database)]
    return await queried(emulator, call, database.rid, "Users", found)


def create_user(emulator: Emulator, call: Call) -> Answer:
    database, body = _database(emulator, call), decoded_object(call.body)
    old = _upserted(call, body, emulator.principals.users(database))
    made = emulator.principals.put_user(database, body, old)
    return _json(made.resource(), made.etag, 200 if old else 201)


def read_user(emulator: Emulator, call: Call) -> Answer:
    found = _user(emulator, call)
    return _json(found.resource(), found.etag)


def replace_user(emulator: Emulator, call: Call) -> Answer:
    database, body = _database(emulator, call), decoded_object(call.body)
    old = _user(emulator, call)
    call.conditions.check_write(old.etag)
    found = emulator.principals.put_user(database, body, old)
    return _json(found.resource(), found.etag)


def delete_user(emulator: Emulator, call: Call) -> Answer:
    found = _user(emulator, call)
    call.conditions.check_write(found.etag)
    emulator.principals.delete(found)
    return Answer(status=204)


def list_permissions(emulator: Emulator, call: Call) -> Answer:
    user = _user(emulator, call)
    found = [_with_token(emulator, call, x) for x in emulator.principals.permissions(user)]
    return listed(call, user.rid, "Permissions", found)


async def query_permissions(emulator: Emulator, call: Call) -> Answer:
    user = _user(emulator, call)
    found = [_with_token(emulator, call, x) for x in emulator.principals.permissions(user)]
    return await queried(emulator, call, user.rid, "Permissions", found)


def create_permission(emulator: Emulator, call: Call) -> Answer:
    body, user = decoded_object(call.body), _user(emulator, call)
    seconds = _seconds(call)
    old = _upserted(call, body, emulator.principals.permissions(user))
    made = emulator.principals.put_permission(user, body, old)
    return _json(_with_token(emulator, call, made, seconds), made.etag, 200 if old else 201)


def read_permission(emulator: Emulator, call: Call) -> Answer:
    found = _permission(emulator, call)
    return _json(_with_token(emulator, call, found), found.etag)


def replace_permission(emulator: Emulator, call: Call) -> Answer:
    old, body = _permission(emulator, call), decoded_object(call.body)
    call.conditions.check_write(old.etag)
    found = emulator.principals.put_permission(_user(emulator, call), body, old)
    return _json(_with_token(emulator, call, found), found.etag)


def delete_permission(emulator: Emulator, call: Call) -> Answer:
    found = _permission(emulator, call)
    call.conditions.check_write(found.etag)
    emulator.principals.delete(found)
    return Answer(status=204)


HANDLERS: Final[dict[str, Handler]] = {
    x.__name__: x
    for x in (
        list_users,
        query_users,
        create_user,
        read_user,
        replace_user,
        delete_user,
        list_permissions,
        query_permissions,
        create_permission,
        read_permission,
        replace_permission,
        delete_permission,
    )
}


def _database(emulator: Emulator, call: Call) -> Database:
    return emulator.containers.database(call.address.database)


def _user(emulator: Emulator, call: Call) -> Principal:
    return emulator.principals.user(_database(emulator, call), call.address.ids[1])


def _permission(emulator: Emulator, call: Call) -> Principal:
    return emulator.principals.permission(_user(emulator, call), call.address.ids[2])


def _upserted(call: Call, body: JsonObject, there: Sequence[Principal]) -> Principal | None:
    """Return what an upsert replaces, if it is there; 412 under another etag than it has."""
    if call.headers.get("x-ms-documentdb-is-upsert", "").lower() != "true":
        return None
    old = next((x for x in there if x.id == body.get("id")), None)
    call.conditions.check_write(None if old is None else old.etag)
    return old


def _with_token(
    emulator: Emulator, call: Call, permission: Principal, seconds: int | None = None
) -> JsonObject:
    expires = int(emulator.clock()) + (_seconds(call) if seconds is None else seconds)
    token = token_for(permission, emulator.key, expires)
    return permission.resource() | {"_token": token}


def _seconds(call: Call) -> int:
    text = call.headers.get("x-ms-documentdb-expiry-seconds", str(_SECONDS))
    seconds = int(text[:_DIGITS]) if text.isdecimal() else 0
    if not 1 <= seconds <= _MAX_SECONDS:
        raise bad_request(
            f"x-ms-documentdb-expiry-seconds is a number up to {_MAX_SECONDS}, not {text!r}."
        )
    return seconds


def _json(resource: JsonObject, etag: str, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(resource), headers={"etag": etag})
