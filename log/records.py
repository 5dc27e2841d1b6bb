"""What a producer hands in."""

from typing import Final

import msgspec

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Operation
from changefeed.log.hashing import place_of

RECORD_BYTES = 16 * 1024 * 1024
"""The largest record, in bytes as stored."""

OPERATIONS: Final = (Operation.INSERT, Operation.REPLACE, Operation.DELETE)
"""An operation is stored as its place here."""
HAS_ID: Final = 4
HAS_PREVIOUS: Final = 8
"""What a kind says besides the operation."""

_SIZE = 4  # the bytes of a size
_MIN_SIZE = 1 + 8 + _SIZE + _SIZE  # kind, time, and the sizes of key and body

Encoded = tuple[int, int, bytes, bytes | None, bytes, bytes | None, int]
"""Commit time, kind, key, id (if it is not the key), body, image before, bytes as stored.

A plain tuple: a producer makes hundreds of thousands of these a second.
"""


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


def placed_record(record: Record, parts: int, now_us: int) -> tuple[tuple[int, int], Encoded]:
    """Return where a record belongs (``place_of``), and what a block takes of it.

    Raise ``FeedRefused`` for what cannot be stored.
    """
    try:
        return place_of(record.key, parts), encode_record(record, now_us)
    except UnicodeEncodeError as error:
        raise FeedRefused(
            f"the key or id of {record!r:.200} has no UTF-8: half a surrogate pair is in it"
        ) from error


def encode_record(record: Record, now_us: int) -> Encoded:
    """Return what a block takes of a record; refuse what cannot be stored.

    Raise ``UnicodeEncodeError`` for text that has no UTF-8.
    """
    key, body, previous = record.key.encode(), record.body, record.previous
    id_ = None
    time = now_us if record.committed_us is None else record.committed_us
    kind = OPERATIONS.index(record.operation)  # by identity: the hash of an enum is slow
    size = _MIN_SIZE + len(key) + len(body)
    if record.id is not None and record.id != record.key:
        id_ = record.id.encode()
        kind |= HAS_ID
        size += _SIZE + len(id_)
    if previous is not None:
        kind |= HAS_PREVIOUS
        size += _SIZE + len(previous)
    if not MIN_TIME_US <= time <= MAX_TIME_US:
        raise FeedRefused(
            f"the commit time {time} of key {record.key[:80]!r} is no time in the years 1 to "
            f"9999: give microseconds since 1970"
        )
    if size > RECORD_BYTES:
        raise FeedRefused(
            f"the record of key {record.key[:80]!r} has {size} bytes, {RECORD_BYTES} is the "
            f"most: keep the body elsewhere, and append a reference to it"
        )
    return time, kind, key, id_, body, previous, size
