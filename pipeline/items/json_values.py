"""The JSON of one value, as a value of a type of Spark: exactly, or not at all.

What does not fit is ``None``, and said to the ``Misfits`` of its item. A STRING takes any JSON,
as text, as in ``source.body_schema``, but no half of a surrogate pair, which has no UTF-8.
Whole numbers may be written in any way (``5``, ``5.0``, ``5e0``), since Cosmos DB has one type
of numbers. A DECIMAL takes a number that needs no rounding. A TIMESTAMP is text of ISO 8601
with its zone, to the microsecond; a DATE is ``2026-01-31``.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

_NULL: Final = b"null"
_QUOTE: Final = b'"'
_NUMBERS: Final = frozenset(b"-0123456789")
_PARTS: Final = frozenset(b".eE")
_LARGEST: Final = float(1 << 64)  # larger ones are not made into whole numbers
_LARGEST_FLOAT: Final = 3.4028234663852886e38
_DAY: Final = len("2026-01-31")
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_EXACT: Final = Context(prec=38)


class Misfits:
    """Whether a value of an item did not fit."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = False

    def note(self, value: bytes) -> None:
        """Note that a value is not one of its column, unless it is null."""
        self.seen |= value != _NULL


Reading: TypeAlias = Callable[[bytes, Misfits], Any]
"""Returns the value of some JSON, or ``None`` for what is null or does not fit."""


def fields_of(value: bytes) -> Mapping[str, msgspec.Raw] | None:
    """Return the fields of a JSON object; ``None`` for any other JSON."""
    if value[:1] != b"{":
        return None
    try:
        return _OBJECT.decode(value)
    except msgspec.DecodeError:  # of half a surrogate pair somewhere in it
        return {name: _again(x) for name, x in json.loads(value).items()}


def text_of(value: bytes) -> str | None:
    """Return what a JSON text says; ``None`` for other JSON, and for what has no UTF-8."""
    try:
        return _TEXT.decode(value)
    except msgspec.DecodeError:
        return None


def text(value: bytes, misfits: Misfits) -> str | None:
    if value[:1] != _QUOTE:
        return None if value == _NULL else value.decode()
    found = text_of(value)
    if found is None:
        misfits.note(value)
    return found


def boolean(value: bytes, misfits: Misfits) -> bool | None:
    if value in (b"true", b"false"):
        return value == b"true"
    misfits.note(value)
    return None


def whole(bits: int) -> Reading:
    """Read whole numbers of so many bits."""
    bound = 1 << (bits - 1)

    def read(value: bytes, misfits: Misfits) -> int | None:
        number = _whole(value)
        if number is None or not -bound <= number < bound:
            misfits.note(value)
            return None
        return number

    return read


def double(value: bytes, misfits: Misfits, largest: float = math.inf) -> float | None:
    if value[0] in _NUMBERS:
        number = float(value)
        if abs(number) <= largest and math.isfinite(number):
            return number
    misfits.note(value)
    return None


single: Final = partial(double, largest=_LARGEST_FLOAT)


def decimal(precision: int, scale: int) -> Reading:
    unit, most = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def read(value: bytes, misfits: Misfits) -> Decimal | None:
        if value[0] in _NUMBERS:
            try:
                number = Decimal(value.decode())
                found = number.quantize(unit, context=_EXACT)
            except InvalidOperation:  # it has too many digits
                misfits.note(value)
                return None
            if found == number and found.copy_abs() < most:
                return found
        misfits.note(value)
        return None

    return read


def day(value: bytes, misfits: Misfits) -> date | None:
    if len(written := text_of(value) or "") == _DAY:
        try:
            return datetime.strptime(written, "%Y-%m-%d").date()  # noqa: DTZ007 - a day
        except ValueError:
            pass
    misfits.note(value)
    return None


def moment(value: bytes, misfits: Misfits, *, zoned: bool) -> datetime | None:
    """Read a time with its zone, or one without."""
    try:
        found = datetime.fromisoformat(text_of(value) or "")
        if (found.utcoffset() is not None) == zoned:
            return found
    except ValueError:
        pass
    misfits.note(value)
    return None


def array(item: Reading) -> Reading:
    def read(value: bytes, misfits: Misfits) -> list[Any] | None:
        if value[:1] != b"[":
            misfits.note(value)
            return None
        return [item(bytes(x), misfits) for x in _elements(value)]

    return read


def struct(fields: Mapping[str, Reading]) -> Reading:
    def read(value: bytes, misfits: Misfits) -> dict[str, Any] | None:
        found = fields_of(value)
        if found is None:
            misfits.note(value)
            return None
        return {
            name: None if (raw := found.get(name)) is None else reading(bytes(raw), misfits)
            for name, reading in fields.items()
        }

    return read


def map_of(item: Reading) -> Reading:
    def read(value: bytes, misfits: Misfits) -> list[tuple[str, Any]] | None:
        found = fields_of(value)
        if found is None or not _has_utf8("".join(found)):
            misfits.note(value)
            return None
        return [(name, item(bytes(raw), misfits)) for name, raw in found.items()]

    return read


def _elements(value: bytes) -> Sequence[msgspec.Raw]:
    try:
        return _ARRAY.decode(value)
    except msgspec.DecodeError:
        return [*map(_again, json.loads(value))]


def _again(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def _has_utf8(found: str) -> bool:
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(value: bytes) -> int | None:
    """Return the number that some JSON is, if it is a whole one of a size that columns have."""
    if value[0] not in _NUMBERS or not abs(float(value)) <= _LARGEST:
        return None
    if _PARTS.isdisjoint(value):
        return int(value)
    try:
        number = Decimal(value.decode())
    except InvalidOperation:  # its exponent is too small
        return None
    return int(number) if number == number.to_integral_value() else None
