"""What producers, consumers and tools say to a broker, and what it answers: plain values.

**Producing.** A producer gathers records for the partitions of one broker, lays them out by
columns (``log.format.block_format.lay_out``), one batch for each partition, and sends them as
one request. All of a request is stored, in one object, or nothing of it. The partitions that
a broker has in an era make up its *row*. A producer numbers its requests to a row from 1
without a gap, and has no more than five of them under way. A broker stores the request that
follows on what it has, keeps one that comes too early for a second, and answers one that it
has as before. So a producer that got no answer sends the same again.

A producer that gives a request up numbers from 1 again, as its next *generation*. The request
may still be on its way, and must not be read after what followed on it: a row that has
a request of a generation takes none of an earlier one.

**Eras.** Rows are new in each era, and numbers begin at 1 again. What a producer must know
when an era ends is which of its requests to the old row are stored: it sends them again, to
any broker. The answer ``moved`` is final: the request is not stored. Its records are cut anew
for the partitions that the topology has now: one of the catalog that the answer names, or a
later one, for in an older one the old row is still open. This holds across splits and merges,
and no broker has to look into a record.

**Consuming.** Sequences of a partition are dense from 1. A read asks for what follows after
a sequence, and may get records before it, since whole sections are sent.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.catalog.ranges import EraShape
from changefeed.log.format.block_format import Layout

MAX_BATCHES = 64 * 1024
"""A request has at most so many batches: small ones take more memory than they have bytes."""
PRODUCER_NAME = 64
"""The longest id of a producer, in characters: any printable ASCII without a space."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Records of one producer for one partition, in order."""

    partition: RangeId
    count: int
    columns: Layout


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Batches for partitions of one row, one for each.

    ``number`` counts the producer's requests to the row, from 1 in each ``generation``.
    ``check`` is the CRC-32 of all columns, one after the other.
    """

    producer: str
    generation: int = 0
    number: int
    check: int
    batches: Annotated[tuple[Batch, ...], msgspec.Meta(max_length=MAX_BATCHES)]

    @property
    def bytes(self) -> int:
        return sum(len(column) for x in self.batches for column in x.columns)


class AppendReceipt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request is stored: the object that holds it exists.

    ``firsts`` are the sequences of the first record of each batch in its partition; none for
    a ``duplicate``, which was stored before.
    """

    firsts: tuple[int, ...] = ()
    duplicate: bool = False


Reason = Literal["moved", "moving", "elsewhere", "gap", "taken", "unknown", "busy"]


class AppendRejection(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request was not stored by this call, and what to do about it.

    moved      the row is closed for good, and does not have it. Send the records to partitions
               of the topology now (catalog ``catalog`` or later).
    moving     the era is ending, or this broker has lost its place in it. Whether the request
               is stored is not known yet: send it again after ``retry_after`` seconds, best
               to the broker that the topology names by then.
    elsewhere  the row is open at another broker: look at the topology (catalog ``catalog`` or
               later) and send it there. Not stored.
    gap        the request before it did not come. Not stored: send both again. A row that has
               forgotten the producer, which was silent for longer than brokers remember,
               answers so, too: then its next generation begins at 1.
    taken      another request has this number: another producer has the same id, or the request
               was not sent again as it was, is older than the last five of its producer, or of
               an earlier generation. Not stored. Take a new id, of chance: none is for two.
    unknown    there is no such partition in the catalog this broker knows. Not stored.
    busy       more waits to be written than this broker may hold: the store is slow. Not
               stored. Send it again after ``retry_after`` seconds.
    """

    reason: Reason
    retry_after: float = 0.0
    catalog: int = 0


Answer = AppendReceipt | AppendRejection


class Block(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Records of one partition that follow each other. ``first`` is the first's sequence."""

    first: int
    count: int
    columns: Layout

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def bytes(self) -> int:
        return sum(map(len, self.columns))

    def sequence_before(self, time_us: int, after: int) -> int | None:
        """Return the last sequence before the first record committed at or after a time.

        ``None`` if there is no such record in it after a sequence.
        """
        for sequence, found in enumerate(memoryview(self.columns.times).cast("q"), self.first):
            if found >= time_us and sequence > after:
                return sequence - 1
        return None


class ReadResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
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
    ending, its partitions take no records, and those of the next will be there soon. Nothing
    is left of eras before ``kept_era``: they are not listed, and end for who is there.
    """

    cluster: str
    collection: str
    identity: str
    parts: int
    catalog: int
    era: int
    ending: bool
    eras: tuple[EraShape, ...]
    kept_era: int = 1
    brokers: tuple[BrokerInfo, ...]
