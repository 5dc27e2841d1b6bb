"""Compaction: what lies in many flushes becomes one run, and a few segments. Frozen.

    compacted/<era>/<broker>/<n>                                   a run of a row
    segments/<collection>/<era>-<broker>-<n>-<digest>.parquet      what is large in it

**A run** holds all records of the objects ``first`` to ``last`` of a row that retention has
not deleted. It is a pack, as a flush is (``pack``).

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
from typing import ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import joined
from changefeed.log.format.flush import PartitionEnd, ProducerState
from changefeed.log.format.pack import Place, Records, Section, decode_pack
from changefeed.log.format.segment_file import Segment


class Run(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Objects of a row whose records are in a run, both numbers included.

    ``written_us`` is when the last of them was written. ``final``: what follows is the seal.
    ``ends`` are those of all partitions of the row after them, and ``producers`` how far
    each has come, if it is final. Sections are in the order of collections, partitions and
    sequences; what one holds may have been in many objects.
    """

    magic: ClassVar[bytes] = b"CFRUN1\r\n"

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
    producers: tuple[ProducerState, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.era, self.broker, self.first)


class RunSection(NamedTuple):
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


def as_one(records: Sequence[Records]) -> Records:
    """Make one of some that follow each other in one partition."""
    first, last = records[0], records[-1]
    assert all(x.last + 1 == y.first for x, y in pairwise(records)), (
        f"records of {first.key} do not follow each other"
    )
    columns = joined(x.columns for x in records)
    return replace(last, first=first.first, columns=columns)


def decode_run(data: bytes, cluster: str, place: Place) -> Run:
    """Read the header of a run, or of its beginning: see ``decode_pack``."""
    run = decode_pack(data, Run, cluster, place)
    if run.last < run.first or not all(x.is_sound() for x in run.segments):
        raise Damaged("what it says cannot be")
    return run
