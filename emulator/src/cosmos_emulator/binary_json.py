"""JSON in the binary form that Azure's newer clients write: a first byte of 0x80, then a value.

Each value begins with a byte that says what it is, and often its size. Numbers are
little-endian; what contains values says how many bytes they have. A text may be one of 32 that
all know, packed into few bits, or a reference to the place of another text.

The emulator reads this form and answers in text, which the same clients read. Texts by the
number in a dictionary of a connection (0x40 to 0x67), and fractions of 2 bytes (0xCF), are 400.
"""

import base64
import math
import struct
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from cosmos_emulator.reading import Bytes

PREAMBLE: Final = b"\x80"
_MOST_NESTED: Final = 256
_MOST_MADE: Final = 4_000_000
"""Characters and values that references and empty arrays may make: an item has 2 MB at most."""
_MOST_PADDING: Final = 2
_BYTE: Final = 0xFF


def value_of(body: bytes) -> Any:
    """Return the value of a body that begins with ``PREAMBLE``; 400 if it is not so written."""
    reader = _Reader(body)
    value = reader.value()
    if reader:
        raise reader.wrong("something follows the value")
    return value


class _Reader(Bytes):
    """Each method reads what follows the byte that says what a value is."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body, form="The request body is not valid binary JSON", at=1)
        self._made = 0
        self._depth = 0

    def value(self) -> Any:
        marker = self.number(1)
        if marker not in _VALUES:
            raise self.wrong(f"{marker:#04x} begins no value that is supported")
        return _VALUES[marker](self)

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def sized(self, shape: struct.Struct) -> int | float:
        found: int | float = self.unpack(shape)[0]
        if not math.isfinite(found):
            raise self.wrong(f"{found} is no number of JSON")
        return found

    def array(self, width: int, *, is_counted: bool) -> list[Any]:
        return self._entries(self.value, width, is_counted=is_counted)

    def object(self, width: int, *, is_counted: bool) -> dict[str, Any]:
        return dict(self._entries(self.member, width, is_counted=is_counted))

    def single(self, entry: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise self.wrong(f"values are nested in more than {_MOST_NESTED} others")
        found = entry()
        self._depth -= 1
        return found

    def member(self) -> tuple[str, Any]:
        marker = self.number(1)
        if marker not in _TEXTS and marker not in _REFERENCES:
            raise self.wrong("the name of a property is no text")
        return _VALUES[marker](self), self.value()

    def _entries(self, entry: Callable[[], Any], width: int, *, is_counted: bool) -> list[Any]:
        """Read as many bytes, and values, as are said first."""
        size = self.number(width)
        count = self.number(width) if is_counted else None
        end, found = self.at + size, []
        while self.at < end:
            found.append(self.single(entry))
        if self.at != end or (count is not None and len(found) != count):
            raise self.wrong("an array or object has another size than it says")
        return found

    def numbers(self, width: int) -> list[Any]:
        """Read an array whose numbers are of one type."""
        shape = self._shape()
        return [self.sized(shape) for _ in range(self.number(width))]

    def arrays_of_numbers(self, width: int) -> list[Any]:
        if _VALUES.get(self.number(1)) is not _OF_NUMBERS[width]:
            raise self.wrong("an array of arrays has none of numbers")
        shape, count, arrays = self._shape(), self.number(width), self.number(width)
        self._make(arrays)
        return [[self.sized(shape) for _ in range(count)] for _ in range(arrays)]

    def _shape(self) -> struct.Struct:
        kind = self.number(1)
        if kind not in _IN_ARRAYS:
            raise self.wrong(f"{kind:#04x} is no type of numbers in an array")
        return _IN_ARRAYS[kind]

    def guid(self) -> str:
        return str(uuid.UUID("".join(self._half_bytes(16))))

    def _half_bytes(self, size: int) -> list[str]:
        """Read hexadecimal digits, the lower half of each byte first."""
        return [f"{y:x}" for x in self.take(size) for y in (x & 0xF, x >> 4)]

    def base64(self, width: int, encoded: Callable[[bytes], bytes]) -> str:
        size, padding = 4 * self.number(width), self.number(1)
        is_left_out = padding > _MOST_PADDING  # then it is inverted
        padding = padding ^ _BYTE if is_left_out else padding
        if padding > min(_MOST_PADDING, size):
            raise self.wrong("a text of base64 has more padding than characters")
        text = encoded(self.take((size - padding) * 3 // 4)).decode()
        return text.rstrip("=") if is_left_out else text

    def of_alphabet(self, alphabet: str) -> str:
        size = self.number(1)
        digits = self._half_bytes(-(-size // 2))[:size]
        return "".join(alphabet[int(x, 16)] for x in digits)

    def packed(self, bits: int, width: int = 1) -> str:
        size = self.number(width)
        base = 0 if bits == 7 else self.number(1)  # noqa: PLR2004 - seven bits hold all
        digits = f"{self.number(-(-size * bits // 8)):0{size * bits}b}"
        ends = range(len(digits), len(digits) - size * bits, -bits)
        return bytes(base + int(digits[x - bits : x], 2) & _BYTE for x in ends).decode("latin1")

    def referred(self, width: int) -> str:
        """Read the text at another place, which is no reference."""
        place = self.number(width)
        back, self.at = self.at, place
        marker = self.number(1)
        if marker not in _TEXTS:
            raise self.wrong("a text refers to what is no text")
        found = _TEXTS[marker](self)
        self.at = back
        self._make(len(found))
        return found

    def _make(self, made: int) -> None:
        self._made += made
        if self._made > _MOST_MADE:
            raise self.wrong(
                f"references and empty arrays make more than {_MOST_MADE:,} values"
            )


def _same(value: Any, _: _Reader) -> Any:
    return value


_KNOWN: Final = (
    *("$s", "$t", "$v", "_attachments", "_etag", "_rid", "_self", "_ts", "attachments/"),
    *("coordinates", "geometry", "GeometryCollection", "id", "url", "Value", "label"),
    *("LineString", "link", "MultiLineString", "MultiPoint", "MultiPolygon", "name", "Name"),
    *("Type", "Point", "Polygon", "properties", "type", "value", "Feature"),
    *("FeatureCollection", "_id"),
)
_TEXTS: Final[dict[int, Callable[[_Reader], str]]] = {
    **{n: partial(_same, x) for n, x in enumerate(_KNOWN, 0x20)},
    0x71: lambda r: r.base64(1, base64.b64encode),
    0x72: lambda r: r.base64(2, base64.b64encode),
    0x73: lambda r: r.base64(1, base64.urlsafe_b64encode),
    0x74: lambda r: r.base64(2, base64.urlsafe_b64encode),
    0x75: lambda r: r.guid(),
    0x76: lambda r: r.guid().upper(),
    0x77: lambda r: f'"{r.guid()}"',
    0x78: lambda r: r.of_alphabet("0123456789abcdef"),
    0x79: lambda r: r.of_alphabet("0123456789ABCDEF"),
    0x7A: lambda r: r.of_alphabet(" 0123456789:-.TZ"),
    0x7B: lambda r: r.packed(4),
    0x7C: lambda r: r.packed(5),
    0x7D: lambda r: r.packed(6),
    0x7E: lambda r: r.packed(7),
    0x7F: lambda r: r.packed(7, width=2),
    **{0x80 + n: partial(_Reader.text, size=n) for n in range(64)},
    0xC0: lambda r: r.text(r.number(1)),
    0xC1: lambda r: r.text(r.number(2)),
    0xC2: lambda r: r.text(r.number(4)),
}
_REFERENCES: Final[dict[int, Callable[[_Reader], str]]] = {
    0xC2 + width: partial(_Reader.referred, width=width) for width in (1, 2, 3, 4)
}
_OF_NUMBERS: Final[dict[int, Callable[[_Reader], list[Any]]]] = {
    1: lambda r: r.numbers(1),
    2: lambda r: r.numbers(2),
}
_IN_ARRAYS: Final = {
    marker: struct.Struct(f"<{shape}")
    for marker, shape in zip((*range(0xD7, 0xDD), 0xCD, 0xCE), "BbhiqIfd", strict=True)
}
_NUMBERS: Final = _IN_ARRAYS | {
    marker: struct.Struct(f"<{shape}")
    for marker, shape in zip(range(0xC7, 0xCD), "QBhiqd", strict=True)
}
_VALUES: Final[dict[int, Callable[[_Reader], Any]]] = {
    **{n: partial(_same, n) for n in range(0x20)},
    **_TEXTS,
    **_REFERENCES,
    **{marker: partial(_Reader.sized, shape=shape) for marker, shape in _NUMBERS.items()},
    0xD0: lambda _: None,
    0xD1: lambda _: False,
    0xD2: lambda _: True,
    0xD3: lambda r: str(uuid.UUID(bytes_le=r.take(16))),
    0xDD: lambda r: base64.b64encode(r.take(r.number(1))).decode(),
    0xDE: lambda r: base64.b64encode(r.take(r.number(2))).decode(),
    0xDF: lambda r: base64.b64encode(r.take(r.number(4))).decode(),
    0xE0: lambda _: [],
    0xE1: lambda r: [r.single(r.value)],
    0xE2: partial(_Reader.array, width=1, is_counted=False),
    0xE3: partial(_Reader.array, width=2, is_counted=False),
    0xE4: partial(_Reader.array, width=4, is_counted=False),
    0xE5: partial(_Reader.array, width=1, is_counted=True),
    0xE6: partial(_Reader.array, width=2, is_counted=True),
    0xE7: partial(_Reader.array, width=4, is_counted=True),
    0xE8: lambda _: {},
    0xE9: lambda r: dict([r.single(r.member)]),
    0xEA: partial(_Reader.object, width=1, is_counted=False),
    0xEB: partial(_Reader.object, width=2, is_counted=False),
    0xEC: partial(_Reader.object, width=4, is_counted=False),
    0xED: partial(_Reader.object, width=1, is_counted=True),
    0xEE: partial(_Reader.object, width=2, is_counted=True),
    0xEF: partial(_Reader.object, width=4, is_counted=True),
    0xF0: _OF_NUMBERS[1],
    0xF1: _OF_NUMBERS[2],
    0xF2: lambda r: r.arrays_of_numbers(1),
    0xF3: lambda r: r.arrays_of_numbers(2),
}
"""What follows each first byte of a value."""
