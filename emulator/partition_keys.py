"""Partition keys: where a container says they are, and what a request or an item says.

One path is supported, hashed by version 2. Two keys are the same if their canonical text
is: ``1`` and ``1.0`` are one key, as they are for Cosmos DB.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from changefeed.emulator.errors import PARTITION_KEY_MISMATCH, bad_request, not_supported
from changefeed.emulator.hashing import Component, effective_partition_key
from changefeed.emulator.json_values import UNDEFINED, JsonObject, value_at

_STEP = re.compile(r'/(?:"([^"]+)"|([^/"]+))')
_EXACT_INTEGERS = 2**53  # beyond this, a double cannot tell neighbours apart


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKey:
    """One value of the partition key. ``text`` is canonical, ``epk`` is its hash."""

    component: Component
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
    if len(paths) > 1 or definition.get("kind", "Hash") != "Hash":
        raise not_supported(
            "A hierarchical partition key (kind MultiHash, several paths)",
            "Give the container one path and kind Hash.",
        )
    if definition.get("version", 2) != 2:  # noqa: PLR2004 - the version that is supported
        raise not_supported(
            "Partition key hashing version 1", 'Say "version": 2, the default of today.'
        )
    if not isinstance(paths[0], str) or not steps_of(paths[0]):
        raise bad_request(f"{paths[0]!r} is not a path such as /pk or /address/zip.")
    return {"paths": paths, "kind": "Hash", "version": 2}


def steps_of(path: str) -> tuple[str, ...]:
    """Split ``/a/"b c"`` into its names; nothing if it is not a path."""
    if "".join(x.group(0) for x in _STEP.finditer(path)) != path:
        return ()
    return tuple(x.group(1) or x.group(2) for x in _STEP.finditer(path))


def partition_key_of(component: Any) -> PartitionKey:
    """Return the key of a JSON value; 400 for arrays and objects."""
    if isinstance(component, dict | list):
        raise bad_request("A partition key is a string, a number, a boolean or null.")
    if isinstance(component, float) and component.is_integer():
        component = int(component) if abs(component) < _EXACT_INTEGERS else component
    shown: Any = {} if component is UNDEFINED else component
    return PartitionKey(
        component=component,
        text=msgspec.json.encode([shown]).decode(),
        epk=effective_partition_key(component),
    )


def key_in_header(header: str) -> PartitionKey:
    """Read ``["p1"]``; ``[{}]`` and ``[]`` stand for an item without the property."""
    try:
        components = msgspec.json.decode(header)
    except msgspec.DecodeError:
        components = None
    if not isinstance(components, list) or len(components) > 1:
        raise bad_request(
            f"The header x-ms-documentdb-partitionkey must be a JSON array with one value, "
            f'such as ["p1"]; it is {header!r}.'
        )
    return partition_key_of(components[0] if components and components[0] != {} else UNDEFINED)


def key_in_item(item: JsonObject, path: str) -> PartitionKey:
    return partition_key_of(value_at(item, steps_of(path)))


def check_same_container(in_header: PartitionKey, in_item: PartitionKey) -> None:
    """Raise 400/1001 unless the request and the item name the same key."""
    if in_header.text != in_item.text:
        raise bad_request(
            f"PartitionKey extracted from document {in_item.text} doesn't match the one "
            f"specified in the header {in_header.text}.",
            PARTITION_KEY_MISMATCH,
        )
