"""What a producer hands in, and how records lie in blocks. Frozen: the file format.

A record is a MessagePack array: key, id (nil where it equals the key), operation (0
insert, 1 replace, 2 delete), body, commit time in microseconds, image before (or nil).
A reader skips fields that it does not know at the end, so there is room for more.

A block is records one after the other, without a header, so that a block grows by
appending bytes, and many blocks become one page with one header in front of them and one
call of the decoder. Reading is the hot path of the whole project, and this keeps Python
out of it but for the making of each ``Change``. It is also one row for SQLite where
records would be hundreds: ``sqlite3`` gives up the interpreter's lock for each row, and in
a busy process gets it back only after up to 5 ms.
"""

from collections.abc import Iterable, Sequence

import msgspec

from feeds.errors import FeedRefused
from feeds.feed import Change, Operation, RangeId

BLOCK_RECORDS = 256
BLOCK_BYTES = 64 * 1024
"""A block takes no more records once it has reached either. Readers do not rely on it."""

RECORD_BYTES = 16 * 1024 * 1024
"""The largest record, in bytes as stored."""

MIN_TIME_US, MAX_TIME_US = -(2**63), 2**63 - 1

_OPERATIONS = (Operation.INSERT, Operation.REPLACE, Operation.DELETE)
_CODES = {operation: code for code, operation in enumerate(_OPERATIONS)}
_ARRAY_32 = b"\xdd"  # MessagePack: an array follows, its length in four bytes


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change as its producer knows it.

    ``id`` is the key unless given, and ``committed_us`` the time of the append.
    """

    key: str
    body: bytes = b""
    id: str | None = None
    operation: Operation = Operation.INSERT
    previous: bytes | None = None
    committed_us: int | None = None


class _Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: str
    id: str | None
    operation: int
    body: bytes
    committed_us: int
    previous: bytes | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Stored]).decode


def encode_record(record: Record, now_us: int) -> tuple[int, bytes]:
    """Return the commit time of a record and its bytes; refuse what cannot be stored."""
    time = now_us if record.committed_us is None else record.committed_us
    if not MIN_TIME_US <= time <= MAX_TIME_US:
        raise FeedRefused(f"the commit time {time} of key {record.key!r} is no time")
    stored = _Stored(
        record.key,
        record.id if record.id != record.key else None,
        _CODES[record.operation],
        record.body,
        time,
        record.previous,
    )
    data = _encode(stored)
    if len(data) > RECORD_BYTES:
        raise FeedRefused(
            f"the record of key {record.key[:80]!r} has {len(data)} bytes, {RECORD_BYTES} is "
            f"the most: keep the body elsewhere, and append a reference to it"
        )
    return time, data


def decode_changes(
    range_id: RangeId, first: int, blocks: Iterable[bytes], count: int
) -> Sequence[Change]:
    """Make the changes of blocks that follow each other and hold ``count`` records.

    ``first`` is the sequence of the first of them.
    """
    header = _ARRAY_32 + count.to_bytes(4, "big")
    try:
        records = _decode(b"".join((header, *blocks)))
    except msgspec.DecodeError as error:
        raise FeedRefused(
            f"the changes of range {range_id!r} from {first} on cannot be read: the log is "
            f"damaged. Restore its directory from a copy"
        ) from error
    return [
        Change(
            range_id=range_id,
            sequence=sequence,
            key=x.key,
            id=x.key if x.id is None else x.id,
            operation=_OPERATIONS[x.operation],
            body=x.body,
            committed_us=x.committed_us,
            previous=x.previous,
        )
        for sequence, x in enumerate(records, first)
    ]
