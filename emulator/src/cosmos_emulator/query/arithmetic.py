"""Functions of whole numbers in queries: 64 bits, which wrap around as in Cosmos DB."""

import math
from typing import Any, Final

from cosmos_emulator.json_values import UNDEFINED

_BITS: Final = 64


def added(left: float, right: float) -> int:
    return _wrapped(int(left) + int(right))


def subtracted(left: float, right: float) -> int:
    return _wrapped(int(left) - int(right))


def multiplied(left: float, right: float) -> int:
    return _wrapped(int(left) * int(right))


def divided(left: float, right: float) -> Any:
    """Divide towards zero; undefined by zero."""
    if not right:
        return UNDEFINED
    quotient = abs(int(left)) // abs(int(right))
    return _wrapped(quotient if (left < 0) == (right < 0) else -quotient)


def remainder(left: float, right: float) -> Any:
    """Return what division leaves, with the sign of the dividend; undefined by zero."""
    if not right:
        return UNDEFINED
    return int(math.copysign(abs(int(left)) % abs(int(right)), left))


def bit_and(left: float, right: float) -> int:
    return _wrapped(int(left) & int(right))


def bit_or(left: float, right: float) -> int:
    return _wrapped(int(left) | int(right))


def bit_xor(left: float, right: float) -> int:
    return _wrapped(int(left) ^ int(right))


def bit_not(value: float) -> int:
    return _wrapped(~int(value))


def shifted_left(value: float, count: float) -> Any:
    return _wrapped(int(value) << int(count)) if 0 <= count < _BITS else UNDEFINED


def shifted_right(value: float, count: float) -> Any:
    return _wrapped(int(value)) >> int(count) if 0 <= count < _BITS else UNDEFINED


def number_bin(value: float, size: float = 1) -> Any:
    """``NUMBERBIN``: the last multiple of a size that is not above a number."""
    return math.floor(value / size) * size if size > 0 else UNDEFINED


def _wrapped(value: int) -> int:
    value %= 1 << _BITS
    return value - (1 << _BITS) if value >> (_BITS - 1) else value
