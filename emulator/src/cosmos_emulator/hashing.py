"""Where in the hash space a partition key lies, as version 2 of Cosmos DB's hashing says.

The key is written as bytes (a type byte, then its value), hashed with MurmurHash3-128,
and reversed; the two highest bits are cut off. So every hash, 32 hexadecimal digits, lies
in [00, 40), although the space is said to end at FF. Such hashes are compared as text.
"""

import struct
from typing import Final

import mmh3

from cosmos_emulator.json_values import UNDEFINED, Undefined

Component = str | int | float | bool | None | Undefined
"""What a partition key can be."""

LOWEST: Final = ""
HIGHEST: Final = "FF"
_SPACE: Final = 1 << 126  # one more than the highest hash
_TYPE_UNDEFINED, _TYPE_NULL, _TYPE_FALSE, _TYPE_TRUE = b"\x00", b"\x01", b"\x02", b"\x03"
_TYPE_NUMBER, _TYPE_STRING, _END_OF_STRING = b"\x05", b"\x08", b"\xff"


def effective_partition_key(component: Component) -> str:
    """Return the hash of a partition key of one component, as 32 upper-case digits."""
    digest = bytearray(reversed(mmh3.hash_bytes(_as_bytes(component))))
    digest[0] &= 0x3F
    return digest.hex().upper()


def even_cuts(parts: int) -> list[str]:
    """Return the bounds that cut the whole space into equal parts; 1FFF…F cuts it in two."""
    return [_digits(_SPACE * i // parts - 1) for i in range(1, parts)]


def middle(low: str, high: str) -> str:
    """Return the hash that cuts [low, high) in two equal halves."""
    return _digits((_number(low) + _number(high) - 1) // 2)


def width(low: str, high: str) -> int:
    """Return how many hashes lie in [low, high)."""
    return _number(high) - _number(low)


def _as_bytes(component: Component) -> bytes:
    if component is UNDEFINED:
        return _TYPE_UNDEFINED
    if component is None:
        return _TYPE_NULL
    if isinstance(component, bool):
        return _TYPE_TRUE if component else _TYPE_FALSE
    if isinstance(component, str):
        return _TYPE_STRING + component.encode() + _END_OF_STRING
    return _TYPE_NUMBER + struct.pack("<d", component)


def _number(bound: str) -> int:
    if bound == HIGHEST:
        return _SPACE
    return int(bound[:32].ljust(32, "0"), 16)  # "" is zero; of several components the first


def _digits(number: int) -> str:
    return f"{number:032X}"
