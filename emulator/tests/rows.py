"""HybridRow and RecordIO a second time, by their published schemas."""

import binascii
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Schema = Sequence[tuple[str, str, str]]
"""(path, type, storage) of each field, as ``HybridRowBatchSchemas.json`` has them."""

OPERATION: Final[Schema] = (
    ("operationType", "int32", "fixed"),
    ("resourceType", "int32", "fixed"),
    ("partitionKey", "utf8", "variable"),
    ("effectivePartitionKey", "binary", "variable"),
    ("id", "utf8", "variable"),
    ("binaryId", "binary", "variable"),
    ("resourceBody", "binary", "variable"),
    ("indexingDirective", "utf8", "sparse"),
    ("ifMatch", "utf8", "sparse"),
    ("ifNoneMatch", "utf8", "sparse"),
    ("timeToLiveInSeconds", "int32", "sparse"),
    ("minimalReturnPreference", "bool", "sparse"),
)
RESULT: Final[Schema] = (
    ("statusCode", "int32", "fixed"),
    ("subStatusCode", "int32", "fixed"),
    ("eTag", "utf8", "variable"),
    ("resourceBody", "binary", "variable"),
    ("retryAfterMilliseconds", "uint32", "sparse"),
    ("requestCharge", "float64", "sparse"),
)
_IDS: Final = {id(OPERATION): 0x7FE15470, id(RESULT): 0x7FE15471}
_CODES: Final = {"int32": 7, "uint32": 11, "float64": 16, "utf8": 20, "binary": 21}
_SHAPES: Final = {"int32": "<i", "uint32": "<I", "float64": "<d"}


def row(schema: Schema, values: Mapping[str, Any]) -> bytes:
    bits, body = 0, b""
    held = [x for x in schema if x[2] != "sparse"]
    for place, (path, kind, storage) in enumerate(held):
        if path in values:
            bits |= 1 << place
        if storage == "fixed" or path in values:
            body += _value(kind, values.get(path, 0))
    head = b"\x81" + struct.pack("<I", _IDS[id(schema)]) + bytes([bits])
    for place, (path, kind, storage) in enumerate(schema, start=1):
        if storage == "sparse" and path in values:
            value = values[path]
            code = 2 + bool(value) if kind == "bool" else _CODES[kind]
            body += bytes([code, place]) + (b"" if kind == "bool" else _value(kind, value))
    return head + body


def stream(rows: Sequence[bytes]) -> bytes:
    whole = bytes.fromhex("81f0d8ff7f 01 0a000000")
    for x in rows:
        whole += bytes.fromhex("81f1d8ff7f") + struct.pack("<iI", len(x), binascii.crc32(x)) + x
    return whole


def results(body: bytes) -> list[dict[str, Any]]:
    """Read the answer to a batch."""
    assert body[:10] == bytes.fromhex("81f0d8ff7f 01 0a000000")
    return [_read(RESULT, x) for x in _records(body[10:])]


def _records(rest: bytes) -> Iterator[bytes]:
    while rest:
        assert rest[:5] == bytes.fromhex("81f1d8ff7f")
        length, check = struct.unpack_from("<iI", rest, 5)
        found, rest = rest[13 : 13 + length], rest[13 + length :]
        assert (len(found), binascii.crc32(found)) == (length, check)
        yield found


def _value(kind: str, value: Any) -> bytes:
    if kind in _SHAPES:
        return struct.pack(_SHAPES[kind], value)
    text = value.encode() if isinstance(value, str) else value
    size, rest = b"", len(text)
    while rest > 127:
        size += bytes([128 + rest % 128])
        rest //= 128
    return size + bytes([rest]) + text


def _read(schema: Schema, body: bytes) -> dict[str, Any]:
    assert body[:5] == b"\x81" + struct.pack("<I", _IDS[id(schema)])
    bits, at = body[5], 6
    found: dict[str, Any] = {}
    held = [x for x in schema if x[2] != "sparse"]
    for place, (path, kind, storage) in enumerate(held):
        if storage == "fixed" or bits >> place & 1:
            found[path], at = _next(kind, body, at)
    while at < len(body):
        path, kind, storage = schema[body[at + 1] - 1]
        assert (storage, body[at]) == ("sparse", _CODES[kind])
        found[path], at = _next(kind, body, at + 2)
    return found


def _next(kind: str, body: bytes, at: int) -> tuple[Any, int]:
    if kind in _SHAPES:
        (value,) = struct.unpack_from(_SHAPES[kind], body, at)
        return value, at + struct.calcsize(_SHAPES[kind])
    size, shift = 0, 0
    while True:
        part, at = body[at], at + 1
        size, shift = size + ((part % 128) << shift), shift + 7
        if part < 128:
            break
    text = body[at : at + size]
    return (text.decode() if kind == "utf8" else text), at + size
