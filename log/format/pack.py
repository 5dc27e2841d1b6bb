"""Packs: a header, and behind it the columns of records. The one format of rows. Frozen.

    magic      8 bytes: names the kind, and shows a transfer as text
    size       of the header, 4 bytes, little-endian
    check      CRC-32 of the header, 4 bytes, little-endian
    header     MessagePack: of a flush (``flush``), or of a run (``runs``)
    columns    for each section ten columns without a gap, as in ``block_format``

The header says where the pack belongs, so that one that was copied elsewhere is none of that
place. A section holds the records of one partition, with the CRC-32 of its columns.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.log.decoding import Undecodable, from_msgpack
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout, check_of

_FIXED: Final = struct.Struct("<8sII")
_MAX_HEADER: Final = 256 * 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
"""So many bytes are read of a pack first. Most headers are shorter."""

Key = tuple[str, RangeId]
"""A partition by its collection and its name."""


class Place(NamedTuple):
    """Where a pack of a row lies. ``number`` is that of its first object."""

    era: int
    broker: str
    number: int


class Section(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The records of one partition in a pack.

    ``first`` is the sequence of the first, ``latest_us`` the latest commit time in the
    partition and ``stored`` the bytes of its columns, both from its beginning up to the end
    of this section. ``offset`` counts from the end of the header.
    """

    collection: str
    partition: RangeId
    first: int
    count: int
    latest_us: int
    stored: int
    offset: int
    sizes: tuple[int, ...]
    check: int

    @property
    def key(self) -> Key:
        return self.collection, self.partition

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


class Records(msgspec.Struct, frozen=True):
    """Records of a partition that follow each other; else as ``Section``."""

    key: Key
    first: int
    last: int
    latest_us: int
    stored: int
    columns: Layout

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def bytes(self) -> int:
        return sum(map(len, self.columns))


class Header(Protocol):
    """What a header says of its pack, whatever kind that is."""

    magic: ClassVar[bytes]

    @property
    def cluster(self) -> str: ...

    @property
    def place(self) -> Place: ...

    @property
    def sections(self) -> tuple[Section, ...]: ...


H = TypeVar("H", bound=Header)


def encode_pack(header: Header, records: Sequence[Records] = ()) -> bytes:
    """Return a pack. ``header`` comes without its sections."""
    assert not header.sections, f"{header.place} has its sections already"
    sections, offset = [], 0
    for x in records:
        assert x.first > 0, f"{x.key} from {x.first} on: sequences count from 1"
        assert x.count == len(x.columns.kinds), f"{x.key}: a kind for each record"
        sections.append(_section(x, offset))
        offset += sections[-1].bytes
    found = msgspec.structs.replace(header, sections=tuple(sections))  # type: ignore[type-var]
    head = msgspec.msgpack.encode(found)
    assert len(head) <= _MAX_HEADER, f"no reader takes a header of {len(head)} bytes"
    fixed = _FIXED.pack(header.magic, len(head), zlib.crc32(head))
    data = b"".join([fixed, head, *(column for x in records for column in x.columns)])
    assert len(data) == header_bytes(data) + offset, f"columns of {offset} bytes: {len(data)}"
    return data


def _section(new: Records, offset: int) -> Section:
    collection, partition = new.key
    return Section(
        collection=collection,
        partition=partition,
        first=new.first,
        count=new.count,
        latest_us=new.latest_us,
        stored=new.stored,
        offset=offset,
        sizes=tuple(map(len, new.columns)),
        check=check_of(new.columns),
    )


def header_bytes(data: bytes) -> int:
    """Return how many bytes of a pack lie before its columns, from the first 16 of them.

    Raise ``Damaged``.
    """
    if len(data) < _FIXED.size:
        raise Damaged(f"it has {len(data)} bytes only")
    _, size, _ = _FIXED.unpack_from(data)
    if size > _MAX_HEADER:
        raise Damaged(f"its header is said to have {size} bytes")
    return _FIXED.size + int(size)


def decode_pack(data: bytes, kind: type[H], cluster: str, place: Place) -> H:
    """Read the header of a pack, or of its beginning, that lies at a place.

    Raise ``Damaged`` for what is damaged, cut off, of another kind, or belongs elsewhere.
    """
    end = header_bytes(data)
    magic, _, check = _FIXED.unpack_from(data)
    if magic != kind.magic:
        raise Damaged("it is of another kind, or has a later format")
    head = data[_FIXED.size : end]
    if len(data) < end or check != zlib.crc32(head):
        raise Damaged("the checksum of its header is wrong")
    try:
        header = from_msgpack(head, kind)
    except Undecodable as error:
        raise Damaged(f"its header cannot be read: {error}") from error
    if header.cluster != cluster or header.place != place:
        there = header.place
        raise Damaged(
            f"it was written as number {there.number} of broker {there.broker!r} in era "
            f"{there.era} of cluster {header.cluster[:8]}"
        )
    return header


def cut_columns(data: bytes, section: Section) -> Layout:
    """Cut the columns of a section from its bytes alone; raise ``Damaged``."""
    size = section.bytes
    if len(section.sizes) != len(Layout._fields) or size > len(data):
        raise Damaged("it ends before its columns do")
    if zlib.crc32(data if size == len(data) else data[:size]) != section.check:
        raise Damaged(f"the checksum of {section.partition!r} in it is wrong")
    columns, begin = [], 0
    for size in section.sizes:
        columns.append(data[begin : begin + size])
        begin += size
    return Layout(*columns)
