"""Partition keys: where a container says they are, and what a request or an item says.

One path (kind Hash), or two or three (kind MultiHash: a hierarchical key), hashed by
version 1 or 2. The hash of a hierarchical key is those of its components, one behind the other,
so that a prefix of the key is a prefix of the hash. Two keys are the same if their
canonical text is: ``1`` and ``1.0`` are one key, as they are for Cosmos DB.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cosmos_emulator.errors import PARTITION_KEY_MISMATCH, bad_request
from cosmos_emulator.hashing import V1, V2, Hashing
from cosmos_emulator.json_values import UNDEFINED, JsonObject, value_at

_STEP = re.compile(r'/(?:"([^"]+)"|([^/"]+))')
_EXACT_INTEGERS = 2**53  # beyond this, a double cannot distinguish neighbours
_MAX_PATHS: Final = 3
_VERSIONS: Final = {1: V1, "V1": V1, 2: V2, "V2": V2}  # the texts are how Java says it


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKey:
    """A partition key, or a prefix of one. ``text`` is canonical, ``epk`` is its hash."""

    components: int
    text: str
    epk: str


def checked_definition(definition: Any) -> JsonObject:
    """Return the definition as stored; 400 for those that the emulator cannot serve."""
    paths = definition.get("paths") if isinstance(definition, dict) else None
    if not isinstance(paths, list) or not paths:
        raise bad_request(
            'A container needs a partition key: {"paths": ["/pk"], "kind": "Hash", '
            '"version": 2}.'
        )
    for path in paths:
        if not isinstance(path, str) or not steps_of(path):
            raise bad_request(f"{path!r} is not a path such as /pk or /address/zip.")
    kind = definition.get("kind", "Hash" if len(paths) == 1 else None)
    if kind not in ("Hash", "MultiHash") or (kind == "Hash" and len(paths) > 1):
        raise bad_request(
            f"A partition key of {len(paths)} paths has the kind Hash (one path) or MultiHash "
            f"(a hierarchical key), not {kind!r}."
        )
    if len(paths) > _MAX_PATHS or len(set(paths)) < len(paths):
        raise bad_request(f"A hierarchical key has up to {_MAX_PATHS} different paths.")
    stored = {"paths": paths, "kind": kind}
    version = definition.get("version", 2 if kind == "MultiHash" else None)
    if version is None:  # it stays unsaid, and means 1
        return stored
    hashing = _VERSIONS.get(version) if isinstance(version, int | str) else None
    if hashing is None or (kind == "MultiHash" and hashing is V1):
        raise bad_request(
            f"A partition key is hashed by version 1 or 2, a hierarchical one by 2, not by "
            f"{version!r}."
        )
    return stored | {"version": hashing.version}


def steps_of(path: str) -> tuple[str, ...]:
    """Split ``/a/"b c"`` into its names; nothing if it is not a path."""
    if "".join(x.group(0) for x in _STEP.finditer(path)) != path:
        return ()
    return tuple(x.group(1) or x.group(2) for x in _STEP.finditer(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDefinition:
    """How a container makes a key of an item or of a header."""

    paths: tuple[str, ...]
    hashing: Hashing = V2

    @classmethod
    def of(cls, stored: JsonObject) -> "KeyDefinition":
        """Read a definition that was checked."""
        hashing = _VERSIONS[stored.get("version", 1)]
        return cls(paths=tuple(stored["paths"]), hashing=hashing)

    def key(self, *components: Any) -> PartitionKey:
        """Return the key of one JSON value for each path; 400 for arrays and objects."""
        plain = [_component(x) for x in components]
        shown = [{} if x is UNDEFINED else x for x in plain]
        return PartitionKey(
            components=len(plain),
            text=msgspec.json.encode(shown).decode(),
            epk="".join(map(self.hashing.of, plain)),
        )

    def in_header(self, header: str) -> PartitionKey:
        """Read ``["p1"]``, with up to one value for each path of the container.

        ``[{}]``, and ``[]`` where there is one path, mean an item without the property.
        """
        paths = len(self.paths)
        try:
            components = msgspec.json.decode(header)
        except msgspec.DecodeError:
            components = None
        if not isinstance(components, list) or len(components) > paths:
            raise bad_request(
                f"The header x-ms-documentdb-partitionkey must be a JSON array with one value "
                f'for each of {paths} paths, such as ["p1"]; it is {header!r}.'
            )
        given = components or [UNDEFINED] * paths
        return self.key(*(UNDEFINED if x == {} else x for x in given))

    def in_item(self, item: JsonObject) -> PartitionKey:
        return self.key(*(value_at(item, steps_of(x)) for x in self.paths))


def check_same_container(in_header: PartitionKey, in_item: PartitionKey) -> None:
    """Raise 400/1001 unless the request and the item name the same key."""
    if in_header.text != in_item.text:
        raise bad_request(
            f"PartitionKey extracted from document {in_item.text} doesn't match the one "
            f"specified in the header {in_header.text}.",
            PARTITION_KEY_MISMATCH,
        )


def _component(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise bad_request("A partition key is a string, a number, a boolean or null.")
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return int(value)
    return value
