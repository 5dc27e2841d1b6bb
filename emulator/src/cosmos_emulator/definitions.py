"""What the definition of a container may say. It is checked whole before any is stored."""

from typing import Any, Final

import msgspec

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.partition_keys import checked_definition, steps_of
from cosmos_emulator.policies import check_policies

MAX_TTL: Final = 2**31 - 1  # seconds
_MAX_ID: Final = 1023
_LARGEST_ITEM: Final = 2 * 1024 * 1024
_FORBIDDEN_IN_IDS: Final = frozenset("/\\?#")
_MODE: Final[JsonObject] = {"indexingMode": "consistent", "automatic": True}
_PATHS: Final[JsonObject] = {
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}
_DEFAULT_CONFLICTS: Final = {"mode": "LastWriterWins", "conflictResolutionPath": "/_ts"}


class _Path(msgspec.Struct, frozen=True):
    path: str


class _Indexing(msgspec.Struct, frozen=True, rename="camel"):
    indexing_mode: str = "consistent"
    automatic: bool = True
    included_paths: list[_Path] = []
    excluded_paths: list[_Path] = []


class _UniqueKey(msgspec.Struct, frozen=True):
    paths: list[str]


class _UniqueKeys(msgspec.Struct, frozen=True, rename="camel"):
    unique_keys: list[_UniqueKey] = []


def checked_id(value: Any) -> str:
    """Return an id of a resource; 400 with what is wrong with it."""
    name = checked_item_id(value)
    if _FORBIDDEN_IN_IDS & set(name):
        raise bad_request(f"The id {name[:64]!r} is not allowed: it contains / \\ ? or #.")
    return name


def checked_item_id(value: Any) -> str:
    """Return an id of an item, which may have any letters; 400 with what is wrong with it."""
    if not isinstance(value, str) or not value:
        raise bad_request('The required property "id" is missing, or not a string.')
    if len(value.encode()) > _MAX_ID:
        raise bad_request(f"The id {value[:64]!r}… is longer than {_MAX_ID} bytes.")
    return value


def check_size(size: int) -> None:
    """Raise 413 for an item of too many bytes."""
    if size > _LARGEST_ITEM:
        raise CosmosError(413, f"The item has {size:,} bytes; 2 MB is the limit.")


def checked_container(body: JsonObject) -> JsonObject:
    """Return what is stored of a container that a client sent; 400 if any of it is wrong."""
    given = body.get("indexingPolicy") or {}
    _check_shape("indexingPolicy", given, _Indexing)
    indexing = _completed(given)
    unique = body.get("uniqueKeyPolicy")
    if unique is not None:
        _check_unique_keys(unique)
    conflicts = body.get("conflictResolutionPolicy") or _DEFAULT_CONFLICTS
    _check_shape("conflictResolutionPolicy", conflicts, dict[str, Any])
    _check_ttl(body.get("defaultTtl"))
    check_policies(body)
    stored = {k: v for k, v in body.items() if not k.startswith("_") and v is not None}
    return stored | {
        "id": checked_id(body.get("id")),
        "partitionKey": checked_definition(body.get("partitionKey")),
        "indexingPolicy": indexing,
        "conflictResolutionPolicy": {"conflictResolutionProcedure": "", **conflicts},
    }


def _completed(indexing: JsonObject) -> JsonObject:
    """Return an indexing policy with what it leaves out.

    Nothing has paths without an index, and an index is automatic, whatever is asked for.
    """
    given = {k: v for k, v in indexing.items() if v is not None}
    if indexing.get("indexingMode") == "none":
        return _MODE | given
    return _MODE | _PATHS | given | {"automatic": True}


def unique_paths(properties: JsonObject) -> tuple[tuple[str, ...], ...]:
    """Return the paths of each unique key of a stored container."""
    keys = (properties.get("uniqueKeyPolicy") or {}).get("uniqueKeys") or []
    return tuple(tuple(x["paths"]) for x in keys)


def _check_unique_keys(policy: Any) -> None:
    keys = _check_shape("uniqueKeyPolicy", policy, _UniqueKeys).unique_keys
    for key in keys:
        wrong = [x for x in key.paths if not steps_of(x)]
        if wrong or not key.paths:
            raise bad_request(
                f"A unique key is one or more paths such as /email; this is {key.paths}."
            )


def _check_ttl(ttl: Any) -> None:
    whole = isinstance(ttl, int) and not isinstance(ttl, bool)
    if ttl is not None and not (whole and (ttl == -1 or 0 < ttl <= MAX_TTL)):
        raise bad_request(
            "defaultTtl must be -1 (items expire by their own ttl) or a number of seconds "
            f"from 1 to {MAX_TTL}."
        )


def _check_shape(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _wrong(name, error) from error


def _wrong(name: str, error: Exception) -> CosmosError:
    return bad_request(f"The {name} of the container cannot be used: {error}.")
