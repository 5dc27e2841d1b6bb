"""One flush of one broker, or the seal that ends its row, as one object. Frozen.

    magic      8 bytes, b"CFWAL1\\r\\n": names the format, and shows a transfer as text
    size       of the header, 4 bytes, little-endian
    check      CRC-32 of the header, 4 bytes, little-endian
    header     MessagePack: ``FlushHeader``
    columns    for each section ten columns without a gap, as in ``eventlog.block_format``

The header says where the object belongs (cluster, era, broker, number) and who wrote it, so
that one that was copied elsewhere is none of that place. A section holds the records of one
partition, with the CRC-32 of its columns. The requests of producers that an object holds, it
holds whole.

Every 64th object of a row, from the first, has a table: the end of every partition of the
row *before* this flush, and beside it how far each producer had come. What holds after a
flush is the last table and what came since; so the end of a row is known from a few reads,
and a sequence or a time is found in it by halving. The seal that a living broker writes has
a table, too; one that a master wrote for a dead broker has none.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from changefeed.feeds.brokers.decoding import Undecodable, from_msgpack
from changefeed.feeds.eventlog.block_format import Layout, check_of
from changefeed.feeds.feed import RangeId

MAGIC: Final = b"CFWAL1\r\n"
TABLE_EVERY: Final = 64
"""Numbers of a row that have a table: 1, 65, 129 ..."""
REMEMBERED: Final = 5
"""The requests of a producer that may be under way to one row, and are known again."""
MAX_IN_FLIGHT: Final = 32
"""The most flushes of one broker that may be under way: readers of a row rely on it."""

_FIXED: Final = struct.Struct("<8sII")
_MAX_HEADER: Final = 256 * 1024 * 1024


Key = tuple[str, RangeId]
"""A partition by its collection and its name."""


class FlushDamaged(Exception):
    """An object of a row is not what was written there. The text says why."""


class Place(NamedTuple):
    """Where an object of a row lies."""

    era: int
    broker: str
    number: int


class StoredRequest(NamedTuple):
    """A request of a producer whose records are all in one object: see ``AppendRequest``."""

    collection: str
    producer: str
    generation: int
    number: int
    check: int


class Reached(NamedTuple):
    """The last request of a producer that a row has, and when it came.

    ``checks`` are those of its last five, the newest last.
    """

    collection: str
    producer: str
    generation: int
    number: int
    seen_us: int
    checks: tuple[int, ...]


class Section(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The records of one partition in a flush.

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
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


class Gathered(NamedTuple):
    """Records of a partition that follow each other, from one flush or more.

    ``latest_us`` and ``stored`` are of the partition after them: see ``Section``.
    """

    key: Key
    first: int
    last: int
    latest_us: int
    stored: int
    columns: Layout

    @property
    def bytes(self) -> int:
        return sum(map(len, self.columns))


def gathered(section: Section, columns: Layout) -> Gathered:
    """Return what a section has."""
    key = (section.collection, section.partition)
    return Gathered(
        key, section.first, section.last, section.latest_us, section.stored, columns
    )


class PartitionEnd(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How far a partition has come: see ``Section``. ``written_us`` is of its last flush."""

    collection: str
    partition: RangeId
    last: int = 0
    latest_us: int = 0
    stored: int = 0
    written_us: int = 0


class FlushHeader(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What an object of a row holds. ``written_us`` is its writer's wall clock.

    ``producers`` go with the table: how far each had come before this object.
    """

    cluster: str
    era: int
    broker: str
    incarnation: str
    number: int
    written_us: int
    seal: bool = False
    table: tuple[PartitionEnd, ...] | None = None
    producers: tuple[Reached, ...] = ()
    requests: tuple[StoredRequest, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.era, self.broker, self.number)


class NewSection(msgspec.Struct, frozen=True, kw_only=True):
    """Records on their way into a flush; else as ``Section``."""

    collection: str
    partition: RangeId
    first: int
    count: int
    latest_us: int
    stored: int
    columns: Layout

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def has_table(number: int) -> bool:
    return number % TABLE_EVERY == 1


def table_before(number: int) -> int:
    """Return the number of the last object up to ``number`` that has a table."""
    return (number - 1) // TABLE_EVERY * TABLE_EVERY + 1


def encode_flush(header: FlushHeader, sections: Sequence[NewSection] = ()) -> bytes:
    """Return the object of a flush. ``header`` comes without its sections."""
    assert not header.sections, f"object {header.number} has its sections already"
    assert header.table is None or header.seal or has_table(header.number), (
        f"no reader looks for a table in object {header.number}"
    )
    placed = []
    offset = 0
    for new in sections:
        name = f"{new.partition!r} from {new.first} on"
        assert new.first > 0, f"{name}: sequences count from 1"
        assert new.count == len(new.columns.kinds), f"{name}: a kind for each record"
        sizes = tuple(map(len, new.columns))
        placed.append(
            Section(
                **{k: v for k, v in msgspec.structs.asdict(new).items() if k != "columns"},
                offset=offset,
                sizes=sizes,
                check=check_of(new.columns),
            )
        )
        offset += sum(sizes)
    head = msgspec.msgpack.encode(msgspec.structs.replace(header, sections=tuple(placed)))
    data = packed(MAGIC, head, (column for new in sections for column in new.columns))
    assert len(data) == header_bytes(data) + offset, (
        f"object {header.number} has {len(data)} bytes, with {offset} of columns"
    )
    return data


def header_bytes(data: bytes) -> int:
    """Return how many bytes of an object its header takes, from the first 16 of them."""
    return packed_header(data, MAGIC, "flush")[0]


def packed(magic: bytes, head: bytes, columns: Iterable[bytes]) -> bytes:
    """Return an object of a header and columns."""
    assert len(head) <= _MAX_HEADER, f"no reader takes a header of {len(head)} bytes"
    return b"".join([_FIXED.pack(magic, len(head), zlib.crc32(head)), head, *columns])


def packed_header(data: bytes, magic: bytes, what: str) -> tuple[int, int]:
    """Return the bytes of an object up to its columns, and the checksum of its header.

    Raise ``FlushDamaged`` if it does not begin as ``what`` does.
    """
    if len(data) < _FIXED.size:
        raise FlushDamaged(f"it has {len(data)} bytes only")
    found, size, check = _FIXED.unpack_from(data)
    if found != magic:
        raise FlushDamaged(f"it is not a {what}, or has a later format")
    if size > _MAX_HEADER:
        raise FlushDamaged(f"its header is said to have {size} bytes")
    return _FIXED.size + size, check


def unpacked_header(data: bytes, magic: bytes, what: str) -> bytes:
    """Return the header of an object, or of its beginning. Raise ``FlushDamaged``."""
    end, check = packed_header(data, magic, what)
    head = data[_FIXED.size : end]
    if len(data) < end or check != zlib.crc32(head):
        raise FlushDamaged("the checksum of its header is wrong")
    return head


def decode_header(data: bytes, cluster: str, place: Place) -> FlushHeader:
    """Read the header of an object, or of its beginning, that lies at a place.

    Raise ``FlushDamaged`` for what is damaged, cut off, or belongs elsewhere.
    """
    head = unpacked_header(data, MAGIC, "flush")
    try:
        header = from_msgpack(head, FlushHeader)
    except Undecodable as error:
        raise FlushDamaged(f"its header cannot be read: {error}") from error
    if header.cluster != cluster or header.place != place:
        raise FlushDamaged(
            f"it was written as number {header.number} of broker {header.broker!r} in era "
            f"{header.era} of cluster {header.cluster[:8]}"
        )
    return header


def section_columns(data: bytes, section: Section) -> Layout:
    """Cut the columns of a section from a whole object; raise ``FlushDamaged``."""
    at = header_bytes(data) + section.offset
    return cut_columns(data[at : at + section.bytes], section)


def cut_columns(data: bytes, section: Section) -> Layout:
    """Cut the columns of a section from its bytes alone; raise ``FlushDamaged``."""
    size = section.bytes
    if len(section.sizes) != len(Layout._fields) or size > len(data):
        raise FlushDamaged("it ends before its columns do")
    if zlib.crc32(data if size == len(data) else data[:size]) != section.check:
        raise FlushDamaged(f"the checksum of {section.partition!r} in it is wrong")
    columns, begin = [], 0
    for size in section.sizes:
        columns.append(data[begin : begin + size])
        begin += size
    return Layout(*columns)


Ends = Mapping[Key, PartitionEnd]


def by_key(ends: Iterable[PartitionEnd]) -> dict[Key, PartitionEnd]:
    return {(x.collection, x.partition): x for x in ends}


def ends_after(headers: Iterable[FlushHeader]) -> dict[Key, PartitionEnd]:
    """Return the ends of partitions after objects that follow each other.

    The first of them has a table. A partition without records may be missing.
    """
    ends: dict[Key, PartitionEnd] = {}
    for header in headers:
        if header.table is not None:
            ends = by_key(header.table)
        for section in header.sections:
            key = (section.collection, section.partition)
            ends[key] = end_with(section, header.written_us)
    return ends


def end_with(section: Section | NewSection, written_us: int) -> PartitionEnd:
    """Return how far a partition has come with a section, written at a time."""
    return PartitionEnd(
        collection=section.collection,
        partition=section.partition,
        last=section.last,
        latest_us=section.latest_us,
        stored=section.stored,
        written_us=written_us,
    )


def section_behind(end: PartitionEnd, columns: Layout) -> NewSection:
    """Give records, of which there are some, their place behind the end of a partition."""
    assert columns.kinds, f"{end.partition}: a section without records"
    latest_us = max(memoryview(columns.times).cast("q"))
    return NewSection(
        collection=end.collection,
        partition=end.partition,
        first=end.last + 1,
        count=len(columns.kinds),
        latest_us=max(latest_us, end.latest_us) if end.last else latest_us,
        stored=end.stored + sum(map(len, columns)),
        columns=columns,
    )


ProducerKey = tuple[str, str]
"""A producer by its collection and its id."""


def producers_after(headers: Iterable[FlushHeader]) -> dict[ProducerKey, Reached]:
    """Return how far producers have come after objects as those of ``ends_after``."""
    found: dict[ProducerKey, Reached] = {}
    for header in headers:
        if header.table is not None:
            found = producers_by_key(header.producers)
        for request in header.requests:
            key = (request.collection, request.producer)
            found[key] = reached_after(found.get(key), request, header.written_us)
    return found


def producers_by_key(producers: Iterable[Reached]) -> dict[ProducerKey, Reached]:
    return {(x.collection, x.producer): x for x in producers}


def reached_after(before: Reached | None, request: StoredRequest, now_us: int) -> Reached:
    """Return how far a producer has come with a request; a generation begins anew."""
    is_next = before is not None and before.generation == request.generation
    assert is_next or request.number == 1, f"{request} does not begin a generation"
    known = before.checks if before is not None and is_next else ()
    assert before is None or not is_next or request.number == before.number + 1, (
        f"{request} does not follow on {before}"
    )
    return Reached(*request[:4], now_us, (*known, request.check)[-REMEMBERED:])
