"""What producers, consumers and tools say to a broker, and what it answers: plain values.

**Producing.** A producer cuts its records into batches, one for each open partition that it
has records for, lays them out by columns (``eventlog.block_format.lay_out``) and sends them
to the broker that the topology names. It numbers its records for each partition from 1
without a gap; a batch carries the number of its first record. A broker stores what follows
on what it has, answers a batch that it has as before, and refuses the rest with ``reached``,
the last number that it has. So a producer that got no answer sends the same again. No more
than five batches of a partition are on their way.

A producer that gives a batch up numbers from 1 again, as its next *generation*. The batch
may still be on its way, and must not be read after what followed on it: a partition that has
records of a generation takes none of an earlier one.

**Eras.** Numbers begin again at 1 in each partition, and partitions are new in each era.
What a producer must know when an era ends is how much of what it sent to an old partition is
stored: it sends the batch again, to any broker, and the answer ``moved`` has ``reached``,
which is final. Records up to there are stored; the others it cuts anew for the partitions
that the topology has now: one of the catalog that the answer names, or a later one, for in
an older one the old partition is still open, and its numbers would begin again. This holds
across splits and merges, and no broker has to look into a record.

**Consuming.** Sequences of a partition are dense from 1. A read asks for what follows after
a sequence, and may get records before it, since whole sections are sent.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from changefeed.feeds.brokers.ranges import EraShape
from changefeed.feeds.eventlog.block_format import Layout
from changefeed.feeds.feed import FeedRange, RangeId

PRODUCER_NAME = 64
"""The longest id of a producer, in characters: any printable ASCII without a space."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one producer for one partition, in order.

    ``sequence`` is the producer's number of the first of them in this partition, from 1 in
    each ``generation``.
    """

    partition: RangeId
    producer: str
    generation: int = 0
    sequence: int
    count: int
    columns: Layout

    @property
    def numbering(self) -> str:
        """The name under which what was reached is stored."""
        return f"{self.producer}.{self.generation}"


def producer_of(numbering: str) -> str:
    """Return whose numbering it is."""
    return numbering.rpartition(".")[0]


class Appended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A batch is stored: the flush object that holds it exists.

    ``first`` is the sequence of its first record in the partition, ``None`` where a
    broker does not know it any more. ``duplicate``: it was stored before.
    """

    partition: RangeId
    first: int | None
    count: int
    duplicate: bool = False


Reason = Literal["moved", "moving", "elsewhere", "gap", "taken", "unknown", "busy"]


class NotAppended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A batch was not stored by this call, and what to do about it.

    moved      the partition is closed for good. Records of the batch up to the producer's
               number ``reached`` are stored; send the others to partitions of the topology
               now (catalog ``catalog`` or later), numbered from 1 there. ``reached`` is
               ``None`` where that is not known any more: the era was too long ago.
    moving     the era is ending, or this broker has lost its place in it. Whether the batch
               is stored is not known yet: send it again after ``retry_after`` seconds, best
               to the broker that the topology names by then.
    elsewhere  the partition is open at another broker: look at the topology (catalog
               ``catalog`` or later) and send it there. Not stored.
    gap        numbers are missing: the partition has those up to ``reached``. Send again
               from ``reached + 1``. Not stored. A producer that was silent for longer than
               brokers remember, and has no batch without an answer, takes a new id.
    taken      other records have these numbers: another producer has the same id, or a batch
               was not sent again as it was, is older than the last five of its producer, or of
               an earlier generation. Not stored. Take a new id, of chance: none is for two.
    unknown    there is no such partition in the catalog this broker knows. Not stored.
    busy       more waits to be written than this broker may hold: the store is slow. Not
               stored. Send it again after ``retry_after`` seconds.
    """

    partition: RangeId
    reason: Reason
    reached: int | None = None
    retry_after: float = 0.0
    catalog: int = 0


Answer = Appended | NotAppended


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition that follow each other. ``first`` is the first's sequence."""

    first: int
    count: int
    columns: Layout

    @property
    def bytes(self) -> int:
        return sum(map(len, self.columns))


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What follows after a sequence of a partition.

    ``blocks`` follow each other; the first may begin before what was asked for, never after.
    None of them means that the end was reached for now. ``last`` is the last sequence that
    this broker knows in the partition. ``ended``: the partition is closed, and these blocks
    are all that follows; it goes on in ``children``, each from its beginning.
    """

    blocks: Sequence[Block]
    last: int
    ended: bool = False
    children: tuple[FeedRange, ...] = ()


class BrokerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the newest era, and where it is reached (``host:port``)."""

    name: str
    incarnation: str
    address: str


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """One collection as a catalog says. Its partitions follow from ``eras`` (``ranges``).

    ``identity`` is the collection's: positions begin with it. ``ending``: the newest era is
    ending, its partitions take no records, and those of the next will be there soon.
    """

    cluster: str
    collection: str
    identity: str
    parts: int
    catalog: int
    era: int
    ending: bool
    eras: tuple[EraShape, ...]
    brokers: tuple[BrokerInfo, ...]
