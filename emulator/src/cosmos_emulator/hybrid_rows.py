"""Batches as Azure's client for .NET writes them: HybridRow, in a stream of RecordIO.

A stream is a header of a segment, then the rows, each behind a header with its length and its
CRC-32. A row is a version, the number of its schema, a byte whose bits say which fields follow,
numbers of 4 bytes, fields behind their length, and sparse fields, each behind its type and its
place in the schema. All is little-endian; lengths and places are in groups of 7 bits.

The values of an operation are those of a batch in JSON. What is not so written is 400.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cosmos_emulator.errors import not_supported
from cosmos_emulator.json_values import JsonObject, decoded
from cosmos_emulator.reading import Bytes

CONTENT_TYPE: Final = "application/octet-stream"
_VERSION: Final = 0x81
_SEGMENT, _RECORD = 2147473648, 2147473649
_SEGMENT_HEADER: Final = struct.Struct("<BIBI")  # its length is always there
_RECORD_HEADER: Final = struct.Struct("<BIII")
_ROW_HEADER: Final = struct.Struct("<BI")
_FALSE, _TRUE, _INT32, _UINT32, _FLOAT64, _UTF8, _BINARY = 2, 3, 7, 11, 16, 20, 21
_SIZED: Final = {_INT32: "<i", _UINT32: "<I", _FLOAT64: "<d"}
_LONGEST_NUMBER: Final = 5  # bytes of 7 bits: a stream has far less than 4 GB
_DOCUMENT: Final = 2
_OPERATIONS: Final[dict[Any, str]] = {
    0: "Create",
    1: "Patch",
    2: "Read",
    4: "Delete",
    5: "Replace",
    20: "Upsert",
}
_NOT_SERVED: Final = ("effectivePartitionKey", "binaryId", "timeToLiveInSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """The fields of a row, in their order; those of fixed size are int32."""

    number: int
    fixed: Sequence[str]
    variable: Mapping[str, int]
    sparse: Mapping[str, int]

    @property
    def names(self) -> list[str]:
        """Return all fields by their place; place 0 is none."""
        return ["", *self.fixed, *self.variable, *self.sparse]


_OPERATION: Final = _Schema(
    number=2145473648,
    fixed=("operationType", "resourceType"),
    variable={
        "partitionKey": _UTF8,
        "effectivePartitionKey": _BINARY,
        "id": _UTF8,
        "binaryId": _BINARY,
        "resourceBody": _BINARY,
    },
    sparse={
        "indexingDirective": _UTF8,
        "ifMatch": _UTF8,
        "ifNoneMatch": _UTF8,
        "timeToLiveInSeconds": _INT32,
        "minimalReturnPreference": _TRUE,
    },
)
_RESULT: Final = _Schema(
    number=2145473649,
    fixed=("statusCode", "subStatusCode"),
    variable={"eTag": _UTF8, "resourceBody": _BINARY},
    sparse={"retryAfterMilliseconds": _UINT32, "requestCharge": _FLOAT64},
)


def are_rows(body: bytes) -> bool:
    """Return whether a body is of rows; no text of JSON begins so."""
    return body[:1] == bytes([_VERSION])


def operations_of(body: bytes) -> list[JsonObject]:
    """Return the operations of a batch, as JSON would say them."""
    return [_operation(x) for x in _records(_Bytes(body))]


def written(results: Sequence[JsonObject]) -> bytes:
    """Return the answer to a batch: a row for each result. Its message has no field."""
    parts = [_SEGMENT_HEADER.pack(_VERSION, _SEGMENT, 1, _SEGMENT_HEADER.size)]
    for result in results:
        row = _row(_RESULT, result)
        parts += [_RECORD_HEADER.pack(_VERSION, _RECORD, len(row), zlib.crc32(row)), row]
    return b"".join(parts)


class _Bytes(Bytes):
    """What of a stream, or of a row, is still to be read."""

    def __init__(self, whole: bytes) -> None:
        super().__init__(whole, form="The batch is no HybridRow")

    def schema(self) -> int:
        """Return the number of the schema that the next header names; it stays to be read."""
        version, number = self.unpack(_ROW_HEADER)
        self.at -= _ROW_HEADER.size
        if version != _VERSION:
            raise self.wrong(f"there is no row of version {_VERSION:#x}")
        return int(number)

    def number(self) -> int:
        found = 0
        for i in range(_LONGEST_NUMBER):
            part = self.take(1)[0]
            found |= (part & 0x7F) << 7 * i
            if part < 0x80:  # noqa: PLR2004 - the bit that says that more follows
                return found
        raise self.wrong("a length has more than 5 bytes")

    def value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE  # the type is the value
        if kind in (_UTF8, _BINARY):
            size = self.number()
            return self.text(size) if kind == _UTF8 else self.take(size)
        (found,) = self.unpack(struct.Struct(_SIZED[kind]))
        return found


def _records(body: _Bytes) -> Iterator[_Bytes]:
    """Give each row of a stream, whose bytes are as they were sent."""
    while body:
        schema = body.schema()
        if schema == _SEGMENT:
            *_, length = body.unpack(_SEGMENT_HEADER)
            body.take(max(0, length - _SEGMENT_HEADER.size))  # a comment, or a schema
        elif schema == _RECORD:
            *_, length, check = body.unpack(_RECORD_HEADER)
            row = body.take(length)
            if zlib.crc32(row) != check:
                raise body.wrong("a row has another CRC-32 than its header says")
            yield _Bytes(row)
        else:
            raise body.wrong(f"there is neither a segment nor a record, but schema {schema}")


def _operation(row: _Bytes) -> JsonObject:
    found = _fields(row, _OPERATION)
    for name in _NOT_SERVED:
        if name in found:
            raise not_supported(f"{name} of an operation in a batch", "Leave it out.")
    if found.get("resourceType") != _DOCUMENT:
        raise not_supported(
            f"A batch over resources of type {found.get('resourceType')}", "Send items."
        )
    kind = found.get("operationType")
    found["operationType"] = _OPERATIONS.get(kind, kind)
    if "resourceBody" in found:
        found["resourceBody"] = decoded(found["resourceBody"])
    return found


def _fields(row: _Bytes, schema: _Schema) -> JsonObject:
    """Read a row of a schema; what is not there is left out."""
    if row.schema() != schema.number:
        raise row.wrong(f"a row of the schema {schema.number} was due")
    row.unpack(_ROW_HEADER)
    there = row.take(1)[0]
    found: JsonObject = {}
    for place, name in enumerate((*schema.fixed, *schema.variable)):
        is_there = bool(there >> place & 1)
        if name in schema.fixed:
            value = row.value(_INT32)  # zero, where it is not there
        elif is_there:
            value = row.value(schema.variable[name])
        if is_there:
            found[name] = value
    while row:
        name, value = _sparse(row, schema)
        if name in found:
            raise row.wrong(f"{name} is there twice")
        found[name] = value
    return found


def _sparse(row: _Bytes, schema: _Schema) -> tuple[str, Any]:
    kind, place, names = row.take(1)[0], row.number(), schema.names
    name = names[place] if place < len(names) else row.take(place - len(names)).decode("latin1")
    expected = schema.sparse.get(name)
    if kind != expected and (kind, expected) != (_FALSE, _TRUE):
        raise row.wrong(f"the field {name!r} of type {kind} is not known")
    return name, row.value(kind)


def _row(schema: _Schema, values: JsonObject) -> bytes:
    """Write a row of a schema; what ``values`` do not have is left out."""
    names = (*schema.fixed, *schema.variable)
    there = sum(1 << i for i, x in enumerate(names) if x in values or x in schema.fixed)
    parts = [_ROW_HEADER.pack(_VERSION, schema.number), bytes([there])]
    parts += [struct.pack("<i", values.get(x, 0)) for x in schema.fixed]
    for name in schema.variable:
        if name in values:
            value = values[name]
            text = value.encode() if isinstance(value, str) else bytes(value)
            parts += [_number(len(text)), text]
    for name, kind in schema.sparse.items():
        if name in values:
            place = _number(schema.names.index(name))
            parts += [bytes([kind]), place, struct.pack(_SIZED[kind], values[name])]
    return b"".join(parts)


def _number(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:  # noqa: PLR2004 - what 7 bits do not hold
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
