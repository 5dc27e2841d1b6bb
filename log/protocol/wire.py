"""What clients and brokers say to each other over HTTP. Pure: bytes and values.

Records travel as columns (``log.format.block_format``), between a head of msgpack and
nothing else::

    4 bytes, little-endian   the size of the head
    the head                 what the columns belong to, how long each is, their CRC-32
    the columns              one after the other, without a gap

A broker joins columns and reads no record. Everything else is JSON.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.decoding import Undecodable, from_msgpack
from changefeed.log.format.block_format import Layout, check_of
from changefeed.log.protocol.messages import AppendRequest, Batch, Block, ReadResult

CONTENT_TYPE: Final = "application/vnd.changefeed.columns"
MAX_BYTES: Final = 32 * 1024 * 1024
"""The largest body of a request: more than the largest record."""
MAX_HEAD: Final = 1024 * 1024

_SIZE = struct.Struct("<I")
_COLUMNS = len(Layout._fields)


class WireDamaged(ValueError):
    """A body is not what this page says. The text says where."""


class BatchHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The head of one batch of a request."""

    partition: RangeId
    count: int
    sizes: tuple[int, ...]


class BlockHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The head of records that follow each other, from the sequence ``first`` on."""

    first: int
    count: int
    sizes: tuple[int, ...]


class AppendHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """See ``protocol.AppendRequest``."""

    check: int
    producer: str
    generation: int
    number: int
    batches: tuple[BatchHead, ...]


class ReadHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """See ``protocol.ReadResult``."""

    check: int
    last: int
    ended: bool
    children: tuple[FeedRange, ...]
    blocks: tuple[BlockHead, ...]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is no success. ``error`` is for programs."""

    error: str
    message: str


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker has compacted since it was asked to.

    ``bytes`` are those of runs and segments. ``ended``: there is no more to do now, as far as
    nothing ``failed``.
    """

    broker: str
    ended: bool
    objects: int
    segments: int
    records: int
    bytes: int
    failed: int


class RangeStorage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a partition is stored: records ``start + 1`` to ``last``.

    ``bytes`` are those of its records as they were sent, without what retention has taken.
    """

    range: RangeId
    start: int = 0
    last: int = 0
    bytes: int = 0


class ActiveProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer that brokers remember in this era, and when its last request came."""

    id: str
    seen_us: int


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection takes in the store.

    ``segments`` and their size are files of Parquet, in which records are smaller; ``flushes``
    are objects with records of all collections of the cluster, and ``flush_bytes`` what the
    records take: those in segments are among them until they may be deleted.
    """

    ranges: tuple[RangeStorage, ...]
    producers: tuple[ActiveProducer, ...]
    segments: int
    segment_bytes: int
    flushes: int
    flush_bytes: int


class PartitionBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences of a partition: the last deleted by retention, and the last."""

    start: int
    last: int


class Positions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sequences that readers of some partitions have come to."""

    after: dict[RangeId, int]


class PartitionNews(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that has ended, or has more than its reader knows.

    ``last`` is its last sequence, ``None`` where another broker knows.
    """

    last: int | None
    ended: bool = False


class SequenceBefore(msgspec.Struct, frozen=True, kw_only=True):
    """The last sequence before a time."""

    sequence: int


_Head = TypeVar("_Head", AppendHead, ReadHead)
_Sized = TypeVar("_Sized", BatchHead, BlockHead)


def _frame(head: msgspec.Struct, columns: Iterable[bytes]) -> list[bytes]:
    """Return the parts of a body. The head must carry the checksum of the columns."""
    encoded = msgspec.msgpack.encode(head)
    return [_SIZE.pack(len(encoded)), encoded, *columns]


def framed_append(request: AppendRequest) -> list[bytes]:
    """Return the parts of a body that appends a request."""
    heads = tuple(
        BatchHead(partition=x.partition, count=x.count, sizes=tuple(map(len, x.columns)))
        for x in request.batches
    )
    head = AppendHead(
        check=request.check,
        producer=request.producer,
        generation=request.generation,
        number=request.number,
        batches=heads,
    )
    return _frame(head, (column for x in request.batches for column in x.columns))


def parsed_append(body: bytes | bytearray) -> AppendRequest:
    """Raise ``WireDamaged`` for what is no body of a request. What is in it is unchecked."""
    head, columns = _split(body, AppendHead)
    return AppendRequest(
        producer=head.producer,
        generation=head.generation,
        number=head.number,
        check=head.check,
        batches=tuple(
            Batch(partition=x.partition, count=x.count, columns=layout)
            for x, layout in _cut(columns, head.check, head.batches)
        ),
    )


def framed_read(result: ReadResult) -> list[bytes]:
    columns = [column for x in result.blocks for column in x.columns]
    blocks = tuple(
        BlockHead(first=x.first, count=x.count, sizes=tuple(map(len, x.columns)))
        for x in result.blocks
    )
    head = ReadHead(
        check=check_of(columns),
        last=result.last,
        ended=result.ended,
        children=result.children,
        blocks=blocks,
    )
    return _frame(head, columns)


def parsed_read(body: bytes) -> ReadResult:
    head, columns = _split(body, ReadHead)
    blocks = [
        Block(first=x.first, count=x.count, columns=layout)
        for x, layout in _cut(columns, head.check, head.blocks)
    ]
    return ReadResult(blocks=blocks, last=head.last, ended=head.ended, children=head.children)


def _split(body: bytes | bytearray, kind: type[_Head]) -> tuple[_Head, memoryview]:
    if len(body) < _SIZE.size:
        raise WireDamaged("the body ends before its head")
    (size,) = _SIZE.unpack_from(body)
    if size > MAX_HEAD or _SIZE.size + size > len(body):
        raise WireDamaged(f"the head is to have {size} bytes, and the body {len(body)}")
    view = memoryview(body)
    try:
        head = from_msgpack(view[_SIZE.size : _SIZE.size + size], kind)
    except Undecodable as error:
        raise WireDamaged(f"the head cannot be read: {error}") from error
    return head, view[_SIZE.size + size :]


def _cut(
    columns: memoryview, check: int, heads: Iterable[_Sized]
) -> Iterator[tuple[_Sized, Layout]]:
    if zlib.crc32(columns) != check:
        raise WireDamaged("the columns changed on the way: their checksum is another")
    begin = 0
    for head in heads:
        if len(head.sizes) != _COLUMNS or min(head.sizes) < 0:
            raise WireDamaged(f"{_COLUMNS} sizes of columns were to come, not {head.sizes!r}")
        cut = []
        for size in head.sizes:
            cut.append(bytes(columns[begin : begin + size]))
            begin += size
        yield head, Layout(*cut)
    if begin != len(columns):
        raise WireDamaged(f"columns of {begin} bytes were to come, {len(columns)} did")
