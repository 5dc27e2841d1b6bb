"""One flush of one broker, or the seal that ends its row: a pack (``pack``). Frozen.

The requests of producers that an object holds, it holds whole.

Every 64th object of a row, from the first, has a table: the end of every partition of the
row *before* this flush, and beside it how far each producer had come. What holds after a
flush is the last table and what came since; so the end of a row is known from a few reads,
and a sequence or a time is found in it by halving. The seal that a living broker writes has
a table, too; one that a master wrote for a dead broker has none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.log.format.block_format import Layout
from changefeed.log.format.pack import (
    Key,
    Place,
    Records,
    Section,
    decode_pack,
    encode_pack,
)

TABLE_EVERY: Final = 64
"""Numbers of a row that have a table: 1, 65, 129 ..."""
REMEMBERED: Final = 5
"""The requests of a producer that may be under way to one row, and are known again."""
MAX_IN_FLIGHT: Final = 32
"""The most flushes of one broker that may be under way: readers of a row rely on it."""


class StoredRequest(NamedTuple):
    """A request of a producer whose records are all in one object: see ``AppendRequest``."""

    collection: str
    producer: str
    generation: int
    number: int
    check: int


class ProducerState(NamedTuple):
    """The last request of a producer that a row has, and when it came.

    ``checks`` are those of its last five, the newest last.
    """

    collection: str
    producer: str
    generation: int
    number: int
    seen_us: int
    checks: tuple[int, ...]


class PartitionEnd(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How far a partition has come: see ``Section``. ``written_us`` is of its last flush."""

    collection: str
    partition: RangeId
    last: int = 0
    latest_us: int = 0
    stored: int = 0
    written_us: int = 0

    @property
    def key(self) -> Key:
        return self.collection, self.partition


class FlushHeader(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What an object of a row holds. ``written_us`` is its writer's wall clock.

    ``producers`` go with the table: how far each had come before this object.
    """

    magic: ClassVar[bytes] = b"CFWAL1\r\n"

    cluster: str
    era: int
    broker: str
    incarnation: str
    number: int
    written_us: int
    seal: bool = False
    table: tuple[PartitionEnd, ...] | None = None
    producers: tuple[ProducerState, ...] = ()
    requests: tuple[StoredRequest, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.era, self.broker, self.number)


def has_table(number: int) -> bool:
    return number % TABLE_EVERY == 1


def table_before(number: int) -> int:
    """Return the number of the last object up to ``number`` that has a table."""
    return (number - 1) // TABLE_EVERY * TABLE_EVERY + 1


def encode_flush(header: FlushHeader, records: Sequence[Records] = ()) -> bytes:
    """Return the object of a flush. ``header`` comes without its sections."""
    assert header.table is None or header.seal or has_table(header.number), (
        f"no reader looks for a table in object {header.number}"
    )
    return encode_pack(header, records)


def decode_header(data: bytes, cluster: str, place: Place) -> FlushHeader:
    """Read the header of an object of a row: see ``decode_pack``."""
    return decode_pack(data, FlushHeader, cluster, place)


Ends = Mapping[Key, PartitionEnd]


def by_key(ends: Iterable[PartitionEnd]) -> dict[Key, PartitionEnd]:
    return {x.key: x for x in ends}


def ends_after(headers: Iterable[FlushHeader]) -> dict[Key, PartitionEnd]:
    """Return the ends of partitions after objects that follow each other.

    The first of them has a table. A partition without records may be missing.
    """
    ends: dict[Key, PartitionEnd] = {}
    for header in headers:
        if header.table is not None:
            ends = by_key(header.table)
        for section in header.sections:
            ends[section.key] = end_with(section, header.written_us)
    return ends


def end_with(found: Section | Records, written_us: int) -> PartitionEnd:
    """Return how far a partition has come with records, written at a time."""
    collection, partition = found.key
    return PartitionEnd(
        collection=collection,
        partition=partition,
        last=found.last,
        latest_us=found.latest_us,
        stored=found.stored,
        written_us=written_us,
    )


def records_behind(end: PartitionEnd, columns: Layout) -> Records:
    """Give records, of which there are some, their place behind the end of a partition."""
    assert columns.kinds, f"{end.partition}: records that are none"
    latest_us = max(memoryview(columns.times).cast("q"))
    return Records(
        end.key,
        end.last + 1,
        end.last + len(columns.kinds),
        max(latest_us, end.latest_us) if end.last else latest_us,
        end.stored + sum(map(len, columns)),
        columns,
    )


ProducerKey = tuple[str, str]
"""A producer by its collection and its id."""


def producers_after(headers: Iterable[FlushHeader]) -> dict[ProducerKey, ProducerState]:
    """Return how far producers have come after objects as those of ``ends_after``."""
    found: dict[ProducerKey, ProducerState] = {}
    for header in headers:
        if header.table is not None:
            found = producers_by_key(header.producers)
        for request in header.requests:
            key = (request.collection, request.producer)
            found[key] = state_after(found.get(key), request, header.written_us)
    return found


def producers_by_key(producers: Iterable[ProducerState]) -> dict[ProducerKey, ProducerState]:
    return {(x.collection, x.producer): x for x in producers}


def state_after(
    before: ProducerState | None, request: StoredRequest, now_us: int
) -> ProducerState:
    """Return how far a producer has come with a request; a generation begins anew."""
    is_next = before is not None and before.generation == request.generation
    assert is_next or request.number == 1, f"{request} does not begin a generation"
    known = before.checks if before is not None and is_next else ()
    assert before is None or not is_next or request.number == before.number + 1, (
        f"{request} does not follow on {before}"
    )
    return ProducerState(*request[:4], now_us, (*known, request.check)[-REMEMBERED:])
