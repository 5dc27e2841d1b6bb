"""Compaction: what lies in many flushes becomes one run, and a few segments. Frozen.

    compacted/<era>/<broker>/<n>                               a run of a row
    segments/<collection>/<partition>/<first>-<last>.parquet   records of one partition

**A run** holds all records of the objects ``first`` to ``last`` of a row that retention has
not deleted. It is a pack, as a flush is:

    magic      8 bytes, b"CFRUN1\\r\\n"
    size       of the header, 4 bytes, little-endian
    check      CRC-32 of the header, 4 bytes, little-endian
    header     MessagePack: ``CompactedRun``
    columns    of its sections, as a flush has them

What is small of a partition lies in the run itself; what is large lies in segments that it
names, where Parquet can be written. Its name is its first number, so the next one is found at
``last + 1``, and what creates it decides how far it goes. It has what is to be known of each
file, and the ends of all partitions after it.

**Segments** hold the records between two sequences, both included, as ``eventlog.segments``
writes them. What is at a sequence never changes, so segments may overlap, and all of them are
right: ``covering`` says what to read where.

**In which order to look.** A segment exists before its run does, the run before the catalog
says that the row begins later (``Row.kept_from``), and that is said for a while before an
object is deleted. So who finds an object missing looks for runs once more, and
only then is something lost:

1. the catalog: what retention has deleted (``Partition.start``), and ``Row.kept_from``;
2. the names of segments, from a listing of ``segments_prefix``, and runs;
3. flushes for what these leave, from ``kept_from`` on;
4. where one is missing: 1 and 2 again, and the runs, which are asked for by their names, since
   a listing may be late; then 3 for what is left. Missing again is damage.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from changefeed.feeds.brokers.decoding import Undecodable, from_msgpack
from changefeed.feeds.brokers.flush import (
    FlushDamaged,
    Gathered,
    PartitionEnd,
    Reached,
    Section,
    packed,
    packed_header,
    unpacked_header,
)
from changefeed.feeds.brokers.names import segment_key
from changefeed.feeds.eventlog.block_format import check_of, joined
from changefeed.feeds.eventlog.segment_file import Group, SegmentFile
from changefeed.feeds.feed import RangeId

MAGIC: Final = b"CFRUN1\r\n"

_NAME: Final = re.compile(r"/([0-9]{19})-([0-9]{19})\.parquet", re.ASCII)


class SegmentBounds(NamedTuple):
    """The first and the last sequence of a segment."""

    first: int
    last: int


class Slice(NamedTuple):
    """Sequences that are read from one segment, or elsewhere where it is ``None``."""

    first: int
    last: int
    segment: SegmentBounds | None


def bounds_of(key: str) -> SegmentBounds | None:
    """Return what a segment holds by its name; ``None`` for what is no segment."""
    found = _NAME.fullmatch(key, max(0, key.rfind("/")))
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        return None
    return SegmentBounds(int(found[1]), int(found[2]))


def covering(segments: Iterable[SegmentBounds], first: int, last: int) -> Sequence[Slice]:
    """Return where to read the records between two sequences, both included.

    The slices follow each other without a gap. As few segments as possible are read; what
    is in none is left to runs and flushes. Nothing is returned if ``last`` is before ``first``.
    """
    ordered = sorted(segments)
    slices: list[Slice] = []
    place = 0
    best: SegmentBounds | None = None
    while first <= last:
        while place < len(ordered) and ordered[place].first <= first:
            if best is None or ordered[place].last > best.last:
                best = ordered[place]
            place += 1
        if best is not None and best.last >= first:
            end = min(best.last, last)
            slices.append(Slice(first, end, best))
        else:
            end = min(ordered[place].first - 1, last) if place < len(ordered) else last
            slices.append(Slice(first, end, None))
        assert end >= first, f"a slice from {first} ends at {end}"
        first = end + 1
    assert all(x.last + 1 == y.first for x, y in pairwise(slices)), f"{slices} leave a gap"
    assert not slices or slices[-1].last == last, f"{slices} do not reach {last}"
    return slices


class Segment(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One file: the rest as in ``SegmentFile``.

    ``stored`` are the bytes that its records had in flushes, from the partition's beginning.
    """

    collection: str
    partition: RangeId
    first: int
    groups: tuple[Group, ...]
    size: int
    is_text: bool
    tail_crc: int
    stored: int

    @property
    def last(self) -> int:
        return self.groups[-1].last

    @property
    def latest_us(self) -> int:
        return self.groups[-1].latest_us

    @property
    def key(self) -> str:
        return segment_key(self.collection, self.partition, self.first, self.last)

    @property
    def file(self) -> SegmentFile:
        return SegmentFile(
            first=self.first,
            groups=self.groups,
            size=self.size,
            is_text=self.is_text,
            tail_crc=self.tail_crc,
        )


class CompactedRun(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Objects of a row whose records are in a run, both numbers included.

    ``written_us`` is when the last of them was written. ``final``: what follows is the seal.
    ``ends`` are those of all partitions of the row after them, and ``producers`` how far
    each has come, if it is final. Segments and sections are in the order of collections,
    partitions and sequences; what a section holds may have been in many objects.
    """

    cluster: str
    era: int
    broker: str
    first: int
    last: int
    written_us: int
    final: bool
    ends: tuple[PartitionEnd, ...]
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...] = ()
    producers: tuple[Reached, ...] = ()


class Packed(NamedTuple):
    """A section of a run: ``begin`` is where its columns begin in the object ``key``."""

    key: str
    begin: int
    section: Section

    @property
    def first(self) -> int:
        return self.section.first

    @property
    def last(self) -> int:
        return self.section.last

    @property
    def latest_us(self) -> int:
        return self.section.latest_us


def pack(gathered: Sequence[Gathered]) -> Gathered:
    """Make one of some that follow each other in one partition."""
    first, last = gathered[0], gathered[-1]
    assert all(x.last + 1 == y.first for x, y in pairwise(gathered)), (
        f"records of {first.key} do not follow each other"
    )
    return last._replace(first=first.first, columns=joined(x.columns for x in gathered))


def encode_run(run: CompactedRun, gathered: Sequence[Gathered] = ()) -> bytes:
    """Return the object of a run, which comes without its sections."""
    assert not run.sections, f"the run from {run.first} on has its sections already"
    offset, sections = 0, []
    for x in gathered:
        sections.append(_section(x, offset))
        offset += x.bytes
    body = msgspec.msgpack.encode(msgspec.structs.replace(run, sections=tuple(sections)))
    data = packed(MAGIC, body, (column for x in gathered for column in x.columns))
    assert len(data) == run_header_bytes(data) + offset, "columns have the sizes they say"
    return data


def _section(found: Gathered, offset: int) -> Section:
    collection, partition = found.key
    return Section(
        collection=collection,
        partition=partition,
        first=found.first,
        count=found.last - found.first + 1,
        latest_us=found.latest_us,
        stored=found.stored,
        offset=offset,
        sizes=tuple(map(len, found.columns)),
        check=check_of(found.columns),
    )


def run_header_bytes(data: bytes) -> int:
    """Return how many bytes of a run lie before its columns, from the first 16 of them."""
    return packed_header(data, MAGIC, "run")[0]


def decode_run(data: bytes, cluster: str, era: int, broker: str, first: int) -> CompactedRun:
    """Read the header of what lies at a place, or of its beginning.

    Raise ``FlushDamaged`` for what was not written there.
    """
    body = unpacked_header(data, MAGIC, "run")
    try:
        run = from_msgpack(body, CompactedRun)
    except Undecodable as error:
        raise FlushDamaged(f"it cannot be read: {error}") from error
    if (run.cluster, run.era, run.broker, run.first) != (cluster, era, broker, first):
        raise FlushDamaged(
            f"it was written for object {run.first} of broker {run.broker!r} in era {run.era} "
            f"of cluster {run.cluster[:8]}"
        )
    if run.last < run.first or not all(x.groups for x in run.segments):
        raise FlushDamaged("what it says cannot be")
    return run
