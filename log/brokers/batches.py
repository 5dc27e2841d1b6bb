"""Whether a request is what it says it is. Pure; a broker looks at sizes, never at a record."""

import re
from typing import Final

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US
from changefeed.log.catalog.ranges import Partition
from changefeed.log.protocol.messages import PRODUCER_NAME, AppendRequest, Batch
from changefeed.log.records import HAS_ID, HAS_PREVIOUS, OPERATIONS, RECORD_BYTES

_PRODUCER: Final = re.compile(rf"[!-~]{{1,{PRODUCER_NAME}}}")
_KINDS: Final = {
    code | more
    for code in range(len(OPERATIONS))
    for more in (0, HAS_ID, HAS_PREVIOUS, HAS_ID | HAS_PREVIOUS)
}
_LAST_NUMBER: Final = 2**62


def check_request(request: AppendRequest) -> None:
    """Raise ``FeedRefused``, with the reason, for a request that readers could not read."""
    if _PRODUCER.fullmatch(request.producer) is None:
        raise FeedRefused(
            f"a producer's id is 1 to {PRODUCER_NAME} printable characters of ASCII without "
            f"a space, not {request.producer[:80]!r}"
        )
    if not 1 <= request.number <= _LAST_NUMBER:
        raise FeedRefused(f"requests are numbered from 1, {request.number} is none")
    if not 0 <= request.generation <= _LAST_NUMBER:
        raise FeedRefused(f"generations are counted from 0, {request.generation} is none")
    if not 0 <= request.check < 2**32:
        raise FeedRefused(f"a checksum has 32 bits, {request.check} is none")
    names = {x.partition for x in request.batches}
    if not names or len(names) != len(request.batches):
        raise FeedRefused(
            f"a request has one batch for each of its ranges, not {len(request.batches)} for "
            f"{len(names)}. Nothing was written"
        )
    for batch in request.batches:
        _check_batch(batch)


def check_row(one: Partition, other: Partition) -> None:
    """Raise ``FeedRefused`` for partitions that no request can be for at once."""
    if (one.era, one.broker) != (other.era, other.broker):
        raise FeedRefused(
            f"a request is for ranges of one broker in one era, and {one.id!r} is not with "
            f"{other.id!r}. Nothing was written"
        )


def _check_batch(batch: Batch) -> None:
    if batch.count < 1:
        raise FeedRefused(f"a batch has one record or more, not {batch.count}")
    columns, count = batch.columns, batch.count
    found = {kind: columns.kinds.count(kind) for kind in _KINDS}
    if len(columns.kinds) != count or sum(found.values()) != count:
        raise _wrong(batch, "kinds")
    if len(columns.times) != 8 * count:
        raise _wrong(batch, "times")
    _check_times(batch)
    ids = sum(n for kind, n in found.items() if kind & HAS_ID)
    images = sum(n for kind, n in found.items() if kind & HAS_PREVIOUS)
    _check_texts(batch, "keys", count, columns.key_sizes, columns.keys)
    _check_texts(batch, "ids", ids, columns.id_sizes, columns.ids)
    _check_sizes(batch, "bodies", count, columns.body_sizes, columns.bodies)
    _check_sizes(batch, "previous", images, columns.previous_sizes, columns.previous)


def _check_times(batch: Batch) -> None:
    times = memoryview(batch.columns.times).cast("q")
    if min(times) < MIN_TIME_US or max(times) > MAX_TIME_US:
        raise FeedRefused(
            f"a record for {batch.partition!r} has the time {min(times)} or {max(times)}: give "
            f"microseconds since 1970, in the years 1 to 9999, and look at the clock of the "
            f"producer"
        )


def _check_texts(batch: Batch, name: str, count: int, sizes: bytes, data: bytes) -> None:
    _check_sizes(batch, name, count, sizes, data)
    if data.isascii():
        return
    at = 0
    for size in memoryview(sizes).cast("I"):
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise _wrong(batch, name) from error
        at += size


def _check_sizes(batch: Batch, name: str, count: int, sizes: bytes, data: bytes) -> None:
    if len(sizes) != 4 * count:
        raise _wrong(batch, name)
    numbers = memoryview(sizes).cast("I")
    if sum(numbers) != len(data):
        raise _wrong(batch, name)
    if len(data) > RECORD_BYTES and max(numbers, default=0) > RECORD_BYTES:
        raise FeedRefused(
            f"a record for {batch.partition!r} has {max(numbers)} bytes in {name}, "
            f"{RECORD_BYTES} is the most: keep the body elsewhere, and append a reference"
        )


def _wrong(batch: Batch, column: str) -> FeedRefused:
    return FeedRefused(
        f"a batch of {batch.count} records for {batch.partition!r} does not fit together: "
        f"its {column} are not those of so many records. Nothing was written"
    )
