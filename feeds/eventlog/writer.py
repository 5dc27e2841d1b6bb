"""Appending to an event log.

A batch is one transaction: all of it is there, or nothing. Records are hashed, grouped
and encoded in a thread first. The transaction then reads the ends of the partitions it
touches, so nothing in memory can be out of step after a failure, and a partition that was
closed meanwhile is noticed inside it.

The writer also seals (``sealer``): the one transaction in which blocks become a segment is
of its connection, between two appends.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.feeds.eventlog.block_format import COLUMNS, Layout
from changefeed.feeds.eventlog.block_writer import Addition, Tail, fill, next_block
from changefeed.feeds.eventlog.catalog import Catalog, check_records_of, read_catalog
from changefeed.feeds.eventlog.checksums import NONE, is_sealed
from changefeed.feeds.eventlog.damage import damaged_end
from changefeed.feeds.eventlog.database import (
    Synchronous,
    advised,
    connect,
    records_kept_open,
    refuse_other_records,
)
from changefeed.feeds.eventlog.hashing import place_of
from changefeed.feeds.eventlog.lock import writer_lock
from changefeed.feeds.eventlog.records import Encoded, Record, encode_record
from changefeed.feeds.eventlog.schema import LOCK, RECORDS
from changefeed.feeds.eventlog.sealer import Sealed, Sealer, segments_module
from changefeed.feeds.eventlog.sealing import SealPolicy
from changefeed.feeds.eventlog.segment_rows import Segment
from changefeed.feeds.eventlog.stored_blocks import END
from changefeed.feeds.feed import RangeId
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_BROKER = 1  # the only one yet

# || makes text of the same bytes.
_APPENDED = ", ".join(f"{x} = CAST({x} || excluded.{x} AS BLOB)" for x in Layout._fields)
_GROW = f"""
INSERT INTO blocks (partition, first, last, latest_us, stored, checks, {COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, {", ".join("?" * len(Layout._fields))})
ON CONFLICT (partition, first) DO UPDATE SET
    last = excluded.last,
    latest_us = excluded.latest_us,
    stored = excluded.stored,
    checks = excluded.checks,
    {_APPENDED}
"""  # noqa: S608 - names of our own columns
_END = """
UPDATE partitions SET last = ?, latest_us = ?, stored = ?, first = ?, size = ?, checks = ?
WHERE partition = ?
"""

_GIVE_UP = "DELETE FROM blocks WHERE partition = ? AND first BETWEEN ? AND ?"
_SEAL_EVERY = 15.0

_Grouped = Mapping[int, Sequence[Encoded]]
"""By the number of the partition: the records it gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What became of a batch: the sequences it got in each range, in the batch's order."""

    sequences: Mapping[RangeId, range]


class _Closed(Exception):
    """A partition takes no more changes; the catalog, read again, may say which does."""


class EventLogWriter:
    """The one writer of a log, in this process or any other. Make it with ``open``."""

    def __init__(
        self, catalog: Catalog, records: aiosqlite.Connection, clock: Callable[[], float]
    ) -> None:
        self._catalog = catalog
        self._records = records
        self._path = catalog.folder(_BROKER) / RECORDS
        self._file = records_kept_open(self._path)
        self._clock = clock
        self._writing = asyncio.Lock()
        self._sealing = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        clock: Callable[[], float] = time.time,
        sealing: SealPolicy | None = None,
        seal_every: float = _SEAL_EVERY,
    ) -> "AsyncIterator[EventLogWriter]":
        """Write to a log until the block is left.

        With ``sealing``, what it names is sealed in the background, every ``seal_every``
        seconds. Raise ``FeedUnavailable``, naming the process, while another one writes, and
        ``FeedRefused`` for what is no log, or may not be written.
        """
        if sealing is not None:
            await asyncio.to_thread(segments_module)  # refused now, if it cannot be done
        catalog = await asyncio.to_thread(read_catalog, Path(path))
        folder = catalog.folder(_BROKER)
        async with AsyncExitStack() as stack:
            stack.enter_context(writer_lock(folder / LOCK))
            await asyncio.to_thread(check_records_of, catalog, _BROKER)
            records = await stack.enter_async_context(connect(folder / RECORDS, "rw"))
            await _prepare(records, folder / RECORDS, synchronous)
            writer = cls(catalog, records, clock)
            if sealing is not None:
                await stack.enter_async_context(_sealed(writer, sealing, seal_every))
            yield writer

    async def append(self, records: Sequence[Record]) -> Appended:
        """Append a batch, all of it or nothing, and return once it is durable.

        Records of one key keep their order. Raise ``FeedUnavailable`` if it could not be
        written and may be appended again, and ``FeedRefused`` for a record that cannot be
        stored; then nothing was written. A caller that is cancelled waits until the batch
        is written or has failed, but does not learn which.
        """
        writing = asyncio.ensure_future(self._append(records))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def seal(
        self, policy: SealPolicy, *, reached: Callable[[str], None] = lambda _: None
    ) -> Sequence[Sealed]:
        """Make segments of what the policy names, and return them.

        Appends go on meanwhile. Raise ``FeedRefused`` without pyarrow, ``FeedUnavailable`` if
        the disk does not take it, and ``RangeDamaged`` if nothing was sealed for a damaged
        block. ``reached`` is called, maybe in a thread, after each step. A caller that is
        cancelled waits for the segment that is being made.
        """
        async with self._sealing:
            sealer = Sealer(self._catalog, _BROKER, self, reached)
            sealing = asyncio.ensure_future(sealer.seal(policy, self._clock()))
            try:
                return await asyncio.shield(sealing)
            except asyncio.CancelledError:
                sealer.stop()
                await asyncio.wait([sealing])
                raise

    async def give_up_blocks(
        self, segment: Segment, reached: Callable[[str], None] = lambda _: None
    ) -> bool:
        """See ``sealer.Border``."""
        assert self._sealing.locked(), "one segment is made after the other"
        number, file = segment.partition, segment.file
        async with self._writing, self._transaction():
            tail = (await self._tails({number}))[number]
            if not (file.last < tail.first or file.last == tail.last):
                return False
            await self._name(segment)
            reached("the segment is named")
            await self._records.execute_fetchall(_GIVE_UP, (number, file.first, file.last))
            if file.last == tail.last:  # its last block does not grow any more
                await self._store([next_block(tail)], ())
            reached("the blocks are given up")
        refuse_other_records(self._file)
        return True

    async def give_back(self) -> None:
        """Give the disk back what sealed blocks took, if that is the most of the file.

        Nothing can be appended meanwhile; readers go on.
        """
        async with self._writing:
            with advised(self._path):
                pages = await self._number("PRAGMA page_count")
                if await self._number("PRAGMA freelist_count") * 2 > pages:
                    await self._run("VACUUM")
                    await self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _name(self, segment: Segment) -> None:
        marks = ", ".join("?" * len(segment.row))
        statement = f"INSERT INTO segments VALUES ({marks})"  # noqa: S608 - of marks alone
        await self._records.execute_fetchall(statement, segment.row)

    async def _number(self, statement: str) -> int:
        (row,) = await self._records.execute_fetchall(statement)
        return int(row[0])

    async def _append(self, records: Sequence[Record]) -> Appended:
        now_us = int(self._clock() * 1_000_000)
        async with self._writing:
            try:
                return await self._write(records, now_us)
            except _Closed:
                home = self._catalog.home
                self._catalog = await asyncio.to_thread(read_catalog, home)
            try:
                return await self._write(records, now_us)
            except _Closed as closed:
                raise FeedUnavailable(f"{closed}: append again", 1.0) from None

    async def _write(self, records: Sequence[Record], now_us: int) -> Appended:
        assert self._writing.locked(), "one batch is written after the other"
        encoded = await asyncio.to_thread(_encoded, self._catalog, records, now_us)
        async with self._transaction():
            tails = await self._tails(encoded)
            ends, additions = _filled(tails, encoded)
            grown = {x.partition: x.last - tails[x.partition].last for x in ends}
            assert all(x > 0 for x in grown.values()), f"partitions that do not grow: {grown}"
            assert sum(grown.values()) == len(records), f"{len(records)} records: {grown}"
            await self._store(ends, additions)
        refuse_other_records(self._file)  # once committed, not before
        return Appended(
            sequences={
                self._catalog.by_number[end.partition].id: range(
                    tails[end.partition].last + 1, end.last + 1
                )
                for end in ends
            }
        )

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        assert not self._records.in_transaction, "the last one was neither kept nor undone"
        with advised(self._path):
            await self._run("BEGIN IMMEDIATE")
            try:
                yield
                await self._run("COMMIT")
                assert not self._records.in_transaction, "what is acknowledged is committed"
            except BaseException:
                if self._records.in_transaction:
                    await self._run("ROLLBACK")
                raise

    async def _run(self, statement: str) -> None:
        await self._records.execute_fetchall(statement)  # the one call that is one hop

    async def _tails(self, numbers: Collection[int]) -> Mapping[int, Tail]:
        rows = await self._records.execute_fetchall(END)
        return {row[0]: self._tail(row) for row in rows if row[0] in numbers}

    def _tail(self, row: Sequence[Any]) -> Tail:
        *numbers, sealed, closed = row
        if not is_sealed(sealed, *numbers):
            raise damaged_end(self._catalog, row[0])
        partition, last, latest_us, stored, first, size = numbers
        return Tail(
            partition=partition,
            last=last,
            latest_us=latest_us,
            stored=stored,
            first=first,
            size=size,
            checks=sealed[: len(NONE)],
            closed=bool(closed),
        )

    async def _store(self, ends: Sequence[Tail], additions: Sequence[Addition]) -> None:
        blocks = [(*x.numbers, x.sealed, *x.data) for x in additions]
        tails = [(*x.numbers[1:], x.sealed, x.partition) for x in ends]
        async with self._records.executemany(_GROW, blocks):
            pass
        async with self._records.executemany(_END, tails):
            pass


@asynccontextmanager
async def _sealed(
    writer: EventLogWriter, policy: SealPolicy, every: float
) -> AsyncIterator[None]:
    """Seal in the background until the block is left."""
    sealing = asyncio.create_task(_keep_sealing(writer, policy, every))
    try:
        yield
    finally:
        sealing.cancel()
        with suppress(asyncio.CancelledError):
            await sealing


async def _keep_sealing(writer: EventLogWriter, policy: SealPolicy, every: float) -> None:
    while True:
        try:
            for made in await writer.seal(policy):
                _log.info("segment.made", range=made.range_id, first=made.first, last=made.last)
        except FeedError as error:
            _log.warning("segment.not_made", reason=str(error))
        await asyncio.sleep(every)


async def _prepare(records: aiosqlite.Connection, path: Path, synchronous: Synchronous) -> None:
    with advised(path):
        await records.execute_fetchall(f"PRAGMA synchronous = {synchronous}")
        # Copying the write-ahead log into the file costs two syncs: every 16 MiB will do.
        await records.execute_fetchall("PRAGMA wal_autocheckpoint = 4096")


def _encoded(catalog: Catalog, records: Sequence[Record], now_us: int) -> _Grouped:
    """Encode records, and group them by the partition that takes their key."""
    numbers, parts = catalog.numbers, catalog.parts
    grouped: dict[int, list[Encoded]] = {}
    for record in records:
        try:
            place = place_of(record.key, parts)
            encoded = encode_record(record, now_us)
        except UnicodeEncodeError as error:
            raise FeedRefused(
                f"the key or id of {record.key!r} has no UTF-8: half a surrogate pair is in it"
            ) from error
        number = numbers.get(place)
        if number is None:
            raise _Closed(f"no range is open for the key {record.key!r}")
        grouped.setdefault(number, []).append(encoded)
    return grouped


def _filled(tails: Mapping[int, Tail], encoded: _Grouped) -> tuple[list[Tail], list[Addition]]:
    """Decide which blocks the batch makes and grows."""
    ends: list[Tail] = []
    additions: list[Addition] = []
    for number, records in encoded.items():
        tail = tails.get(number)
        if tail is None or tail.closed:
            raise _Closed("a range was closed, and what goes on with its keys is not open yet")
        end, grown = fill(tail, records)
        ends.append(end)
        additions.extend(grown)
    return ends, additions
