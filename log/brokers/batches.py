"""Whether a request is what it says it is. Pure; a broker looks at sizes, never at a record."""

import re
from collections.abc import Sequence
from typing import Final

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, RangeId
from changefeed.log.catalog.ranges import Partition
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import check_counts
from changefeed.log.protocol.messages import PRODUCER_NAME, AppendRequest, Batch
from changefeed.log.records import RECORD_BYTES

_PRODUCER: Final = re.compile(rf"[!-~]{{1,{PRODUCER_NAME}}}")
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
    check_names([x.partition for x in request.batches])
    for batch in request.batches:
        _check_batch(batch)


def check_names(names: Sequence[RangeId]) -> None:
    """Raise ``FeedRefused`` for what names no range, or one twice."""
    if not names or len({*names}) != len(names):
        raise FeedRefused(
            f"a request names each of its ranges once, not {len(names)} for {len({*names})}. "
            f"Nothing was done"
        )


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
    columns = batch.columns
    try:
        check_counts(batch.count, columns)
    except Damaged as error:
        raise _wrong(batch, str(error)) from error
    _check_times(batch)
    _check_texts(batch, "keys", columns.key_sizes, columns.keys)
    _check_texts(batch, "ids", columns.id_sizes, columns.ids)
    _check_sizes(batch, "bodies", columns.body_sizes, columns.bodies)
    _check_sizes(batch, "previous", columns.previous_sizes, columns.previous)


def _check_times(batch: Batch) -> None:
    times = memoryview(batch.columns.times).cast("q")
    if min(times) < MIN_TIME_US or max(times) > MAX_TIME_US:
        raise FeedRefused(
            f"a record for {batch.partition!r} has the time {min(times)} or {max(times)}: give "
            f"microseconds since 1970, in the years 1 to 9999, and look at the clock of the "
            f"producer"
        )


def _check_texts(batch: Batch, name: str, sizes: bytes, data: bytes) -> None:
    _check_sizes(batch, name, sizes, data)
    if data.isascii():
        return
    at = 0
    for size in memoryview(sizes).cast("I"):
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise _wrong(batch, f"its {name} are no UTF-8") from error
        at += size


def _check_sizes(batch: Batch, name: str, sizes: bytes, data: bytes) -> None:
    numbers = memoryview(sizes).cast("I")
    if sum(numbers) != len(data):
        raise _wrong(batch, f"its {name} have other sizes than it says")
    if len(data) > RECORD_BYTES and max(numbers) > RECORD_BYTES:
        raise FeedRefused(
            f"a record for {batch.partition!r} has {max(numbers)} bytes in {name}, "
            f"{RECORD_BYTES} is the most: keep the body elsewhere, and append a reference"
        )


def _wrong(batch: Batch, why: str) -> FeedRefused:
    return FeedRefused(
        f"a batch of {batch.count} records for {batch.partition!r} does not fit together: "
        f"{why}. Nothing was written"
    )
