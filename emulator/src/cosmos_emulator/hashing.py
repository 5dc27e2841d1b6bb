"""Where in the hash space a partition key lies, as each version of Cosmos DB's hashing says.

The key is written as bytes (a type byte, then its value) and hashed. Such hashes are compared
as text, in hexadecimal digits, in a space that is said to end at FF.

Version 2: MurmurHash3-128, reversed; the two highest bits are cut off. So every hash, of 32
digits, lies in [00, 40).

Version 1: MurmurHash3-32 of the first 100 characters, as a number, and the key itself behind
it. Both are written so that texts are in the order of values: of a number its bits in groups
of 7, of a string up to 101 bytes, each one more than it is.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

import mmh3

from cosmos_emulator.json_values import UNDEFINED, Undefined

Component = str | int | float | bool | None | Undefined
"""What a partition key can be."""

LOWEST: Final = ""
HIGHEST: Final = "FF"
_TYPE_UNDEFINED, _TYPE_NULL, _TYPE_FALSE, _TYPE_TRUE = b"\x00", b"\x01", b"\x02", b"\x03"
_TYPE_NUMBER, _TYPE_STRING = b"\x05", b"\x08"
_HASHED_CHARACTERS: Final = 100  # in version 1; of their bytes, as many are written
_SIGN: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1
_SPACE_1: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashing:
    """A version of hashing: what it makes of a component, and its space of ``size`` hashes.

    ``text`` and ``number`` go from a place in the space to its digits, and back.
    """

    version: int
    size: int
    of: Callable[[Component], str]
    text: Callable[[int], str]
    number: Callable[[str], int]

    def even_cuts(self, parts: int) -> list[str]:
        """Return the bounds that cut the whole space into equal parts."""
        part = (self.size - 1) // parts
        return [self.text(i * part) for i in range(1, parts)]

    def middle(self, low: str, high: str) -> str:
        """Return the hash that cuts [low, high) in two equal halves."""
        return self.text((self._place(low) + self._place(high) - 1) // 2)

    def width(self, low: str, high: str) -> int:
        """Return how many hashes lie in [low, high)."""
        return self._place(high) - self._place(low)

    def _place(self, bound: str) -> int:
        if bound in (LOWEST, HIGHEST):
            return self.size if bound else 0
        return min(self.number(bound), self.size)


def _of_version_2(component: Component) -> str:
    digest = bytearray(reversed(mmh3.hash_bytes(_hashed(component, b"\xff"))))
    digest[0] &= 0x3F
    return digest.hex().upper()


def _of_version_1(component: Component) -> str:
    if isinstance(component, str):
        component = component[:_HASHED_CHARACTERS]
    number = mmh3.hash(_hashed(component, b"\x00"), signed=False)
    return (_sorted_number(number) + _sorted(component)).hex().upper()


def _hashed(component: Component, end_of_string: bytes) -> bytes:
    """Return the bytes that are hashed."""
    if isinstance(component, str):
        return _TYPE_STRING + component.encode() + end_of_string
    if _is_number(component):
        return _TYPE_NUMBER + struct.pack("<d", component)
    return _alone(component)


def _sorted(component: Component) -> bytes:
    """Return bytes in the order of values, as version 1 writes them."""
    if isinstance(component, str):
        text = component.encode()
        end = b"\x00" if len(text) <= _HASHED_CHARACTERS else b""  # else one byte more tells
        return _TYPE_STRING + bytes(x + 1 for x in text[: _HASHED_CHARACTERS + 1]) + end
    if _is_number(component):
        return _sorted_number(component)
    return _alone(component)


def _sorted_number(value: float) -> bytes:
    """Return a number, the first 8 bits whole, then 7 bits and whether more of them follow."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    bits = _SIGN - (bits - _SIGN) if bits >= _SIGN else bits ^ _SIGN
    groups, rest = [bits >> 56], bits << 8 & _ALL_BITS
    while rest:
        groups.append(rest >> 56 | 1)
        rest = rest << 7 & _ALL_BITS
    last = groups.pop() & 0xFE if len(groups) > 1 else 0
    return _TYPE_NUMBER + bytes([*groups, last])


def _text_of_version_1(place: int) -> str:
    return _sorted_number(place).hex().upper()


def _number_of_version_1(bound: str) -> int:
    return bisect_left(range(_SPACE_1), bound, key=_text_of_version_1)


def _alone(component: Component) -> bytes:
    """Return what has no value behind its type."""
    if component is UNDEFINED:
        return _TYPE_UNDEFINED
    if component is None:
        return _TYPE_NULL
    return _TYPE_TRUE if component else _TYPE_FALSE


def _is_number(component: Component) -> TypeGuard[int | float]:
    return isinstance(component, int | float) and not isinstance(component, bool)


V1: Final = Hashing(
    version=1,
    size=_SPACE_1,
    of=_of_version_1,
    text=_text_of_version_1,
    number=_number_of_version_1,
)
V2: Final = Hashing(
    version=2,
    size=1 << 126,
    of=_of_version_2,
    text=lambda place: f"{place:032X}",
    number=lambda bound: int(bound[:32].ljust(32, "0"), 16),  # of several hashes the first
)
