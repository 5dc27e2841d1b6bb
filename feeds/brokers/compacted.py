"""Compaction: what lies in many flushes becomes one run, and a few segments. Frozen.

    compacted/<era>/<broker>/<n>                                   a run of a row
    segments/<collection>/<era>-<broker>-<n>-<digest>.parquet      what is large in it

**A run** holds all records of the objects ``first`` to ``last`` of a row that retention has
not deleted. It is a pack, as a flush is:

    magic      8 bytes, b"CFRUN1\\r\\n"
    size       of the header, 4 bytes, little-endian
    check      CRC-32 of the header, 4 bytes, little-endian
    header     MessagePack: ``CompactedRun``
    columns    of its sections, as a flush has them

What a collection has in it lies in the run itself where it is small; where it is large, and
Parquet can be written, it lies in a segment that the run names. A run's name is its first
number, so the next one is found at ``last + 1``, and what creates it decides how far it goes.
It has what is to be known of each file, and the ends of all partitions after it. A segment that
its run does not name is nobody's; its name has the digest of what it holds.

**In which order to look.** A segment exists before its run does, the run before the catalog
says that the row begins later (``Row.kept_from``), and that is said for a while before an
object is deleted. So who finds an object missing looks for runs once more, and
only then is something lost:

1. the catalog: what retention has deleted (``Partition.start``), and ``Row.kept_from``;
2. the runs that are known;
3. flushes for what these leave, from ``kept_from`` on;
4. where one is missing: 1 and 2 again, with the runs asked for by their names, since a listing
   may be late; then 3 for what is left. Missing again is damage.
"""

from collections.abc import Sequence
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
from changefeed.feeds.eventlog.block_format import check_of, joined
from changefeed.feeds.eventlog.segment_file import Segment

MAGIC: Final = b"CFRUN1\r\n"


class CompactedRun(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Objects of a row whose records are in a run, both numbers included.

    ``written_us`` is when the last of them was written. ``final``: what follows is the seal.
    ``ends`` are those of all partitions of the row after them, and ``producers`` how far
    each has come, if it is final. Sections are in the order of collections, partitions and
    sequences; what one holds may have been in many objects.
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
    if run.last < run.first or not all(x.is_sound() for x in run.segments):
        raise FlushDamaged("what it says cannot be")
    return run
