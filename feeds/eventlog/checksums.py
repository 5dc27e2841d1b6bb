"""Checksums of what a log keeps: of each block, and of the end of each partition. Frozen.

The checksums of a block are the CRC-32 of each of its ten columns, and one more of them and
of the numbers in its row. The CRC of bytes goes on where that of the bytes before them ended:
so a block that grows is never read, and the numbers bind it to its place, so that a block
of another partition, or of another sequence, is none of this one. CRC-32 is in the
interpreter, and finds every damage of up to 32 bits in a row.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

_COLUMNS: Final = 10
NONE: Final = bytes(4 * _COLUMNS)
"""The checksums of ten empty columns."""

_SEALED: Final = 44
_CRC: Final = struct.Struct("<I")


def extend(checks: bytes, columns: Sequence[bytes]) -> bytes:
    """Return the checksums of columns that grow, from those of what they held before."""
    assert len(columns) == _COLUMNS, f"{len(columns)} columns would not all be checked"
    before = struct.unpack("<10I", checks)
    return struct.pack("<10I", *map(zlib.crc32, columns, before))


def seal(checks: bytes, *numbers: int) -> bytes:
    """Bind the checksums of columns to the numbers stored beside them."""
    assert len(checks) == len(NONE), f"{len(checks)} bytes are no checksums of ten columns"
    sealed = checks + _CRC.pack(_crc(checks, numbers))
    assert len(sealed) == _SEALED, f"no reader takes {len(sealed)} bytes of checksums"
    return sealed


def are_numbers(values: Iterable[object]) -> bool:
    """Whether they are of the type of all numbers in a row. SQLite does not see to that."""
    return all(type(x) is int for x in values)


def are_bytes(values: Iterable[object]) -> bool:
    """Whether they are of the type of all columns of a block."""
    return all(type(x) is bytes for x in values)


def is_sealed(sealed: bytes, *numbers: int) -> bool:
    """Whether numbers and the checksums beside them are as they were written."""
    return (
        type(sealed) is bytes
        and len(sealed) == _SEALED
        and are_numbers(numbers)
        and _CRC.unpack_from(sealed, 40)[0] == _crc(sealed[:40], numbers)
    )


def is_whole(sealed: bytes, columns: Sequence[bytes], *numbers: int) -> bool:
    """Whether a block is as it was written: its columns, their order, and its place."""
    return (
        is_sealed(sealed, *numbers)
        and are_bytes(columns)
        and struct.unpack_from("<10I", sealed) == tuple(map(zlib.crc32, columns))
    )


def is_column(sealed: bytes, place: int, column: bytes) -> bool:
    """Whether one column is as it was written, where the checksums are known to be."""
    return type(column) is bytes and _CRC.unpack_from(sealed, 4 * place)[0] == zlib.crc32(
        column
    )


def _crc(checks: bytes, numbers: Sequence[int]) -> int:
    return zlib.crc32(struct.pack(f"<{len(numbers)}q", *numbers), zlib.crc32(checks))
