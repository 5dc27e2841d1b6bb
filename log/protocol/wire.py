"""What clients and brokers say to each other over HTTP. Pure: bytes and values.

Records travel as columns (``log.format.block_format``) in MessagePack: to a broker an
``AppendRequest``, whose checksum is that of the columns, and from it a ``ReadResult`` behind
the CRC-32 of its bytes, 4 bytes, little-endian. A broker joins columns and reads no record.
Everything else is JSON.
"""

import struct
import zlib
from typing import Final

import msgspec
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.decoding import Undecodable, from_msgpack
from changefeed.log.format.block_format import check_of
from changefeed.log.protocol.messages import AppendRequest, ReadResult

CONTENT_TYPE: Final = "application/vnd.changefeed.columns"
MAX_BYTES: Final = 32 * 1024 * 1024
"""The largest body of a request: more than the largest record."""
_CHECK: Final = struct.Struct("<I")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is no success. ``error`` is for programs."""

    error: str
    message: str


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker has compacted since it started, or since it was asked to.

    ``objects`` became runs and ``segments``, which have so many ``bytes``. ``ended``: there is
    no more to do now, as far as nothing ``failed``.
    """

    broker: str
    ended: bool = True
    objects: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    failed: int = 0

    def plus(self, more: "Compaction", times: int = 1) -> "Compaction":
        """Return this with the counts of another added so many times."""
        counts = ("objects", "segments", "records", "bytes", "failed")
        return replace(self, **{x: getattr(self, x) + times * getattr(more, x) for x in counts})


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


class PartitionNews(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that has ended, or has more than its reader knows.

    ``last`` is its last sequence, ``None`` where another broker knows, or it is damaged.
    """

    last: int | None
    ended: bool = False


def encode_append(request: AppendRequest) -> bytes:
    """Return the body that appends a request."""
    return msgspec.msgpack.encode(request)


def decode_append(body: bytes | bytearray) -> AppendRequest:
    """Raise ``Undecodable`` for bytes that are no request; what it asks for is not checked."""
    request = from_msgpack(body, AppendRequest)
    if check_of(column for x in request.batches for column in x.columns) != request.check:
        raise Undecodable("the columns changed on the way: their checksum is another")
    return request


def encode_read(result: ReadResult) -> bytearray:
    """Return the body that answers a read."""
    body = bytearray()
    msgspec.msgpack.Encoder().encode_into(result, body, _CHECK.size)
    _CHECK.pack_into(body, 0, zlib.crc32(memoryview(body)[_CHECK.size :]))
    return body


def decode_read(body: bytes | bytearray) -> ReadResult:
    """Raise ``Undecodable`` for what is no such body, or was changed on the way."""
    data = memoryview(body)[_CHECK.size :]
    if len(body) < _CHECK.size or _CHECK.unpack_from(body)[0] != zlib.crc32(data):
        raise Undecodable("it changed on the way: its checksum is another")
    return from_msgpack(data, ReadResult)
