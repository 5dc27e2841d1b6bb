"""Appending to an event log.

A batch is one transaction: all of it is there, or nothing. Records are hashed, grouped
and encoded in a thread first. The transaction then reads the ends of the partitions it
touches, so nothing in memory can be out of step after a failure, and a partition that was
closed meanwhile is noticed inside it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.eventlog.block_format import COLUMNS, Layout
from changefeed.feeds.eventlog.block_writer import Addition, Tail, fill
from changefeed.feeds.eventlog.catalog import Catalog, read_catalog
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
from changefeed.feeds.eventlog.upgrade import upgrade
from changefeed.feeds.feed import RangeId

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
_TAILS = (
    "SELECT partition, last, latest_us, stored, first, size, closed, checks FROM partitions"
)

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

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        clock: Callable[[], float] = time.time,
    ) -> "AsyncIterator[EventLogWriter]":
        """Write to a log until the block is left.

        Raise ``FeedUnavailable``, naming the process, while another one writes, and
        ``FeedRefused`` for what is no log, or may not be written.
        """
        catalog = await asyncio.to_thread(read_catalog, Path(path))
        folder = catalog.folder(_BROKER)
        async with AsyncExitStack() as stack:
            stack.enter_context(writer_lock(folder / LOCK))
            await asyncio.to_thread(upgrade, catalog, _BROKER)
            records = await stack.enter_async_context(connect(folder / RECORDS, "rw"))
            await _prepare(records, folder / RECORDS, synchronous)
            yield cls(catalog, records, clock)

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
        encoded = await asyncio.to_thread(_encoded, self._catalog, records, now_us)
        with advised(self._path):
            await self._run("BEGIN IMMEDIATE")
            try:
                tails = await self._tails(encoded)
                ends, additions = _filled(tails, encoded)
                await self._store(ends, additions)
                await self._run("COMMIT")
            except BaseException:
                if self._records.in_transaction:
                    await self._run("ROLLBACK")
                raise
        refuse_other_records(self._file)  # once committed, not before
        return Appended(
            sequences={
                self._catalog.by_number[end.partition].id: range(
                    tails[end.partition].last + 1, end.last + 1
                )
                for end in ends
            }
        )

    async def _run(self, statement: str) -> None:
        await self._records.execute_fetchall(statement)  # the one call that is one hop

    async def _tails(self, numbers: Collection[int]) -> Mapping[int, Tail]:
        rows = await self._records.execute_fetchall(_TAILS)
        return {row[0]: self._tail(row) for row in rows if row[0] in numbers}

    def _tail(self, row: Sequence[Any]) -> Tail:
        partition, last, latest_us, stored, first, size, closed, sealed = row
        tail = Tail(
            partition=partition,
            last=last,
            latest_us=latest_us,
            stored=stored,
            first=first,
            size=size,
            checks=sealed[: len(NONE)],
            closed=bool(closed),
        )
        if not is_sealed(sealed, *tail.numbers):
            raise damaged_end(self._catalog, partition)
        return tail

    async def _store(self, ends: Sequence[Tail], additions: Sequence[Addition]) -> None:
        blocks = [(*x.numbers, x.sealed, *x.data) for x in additions]
        tails = [(*x.numbers[1:], x.sealed, x.partition) for x in ends]
        async with self._records.executemany(_GROW, blocks):
            pass
        async with self._records.executemany(_END, tails):
            pass


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
