"""Appending to an event log: the one process that writes it, at its place in the row.

A batch is in one frame of the row: all of it is there, or nothing. Batches that are handed in
while a frame is written make up the next one, so that many tasks wait for one sync of the disk.

Where ranges end is known in memory, from the row as it was taken over and what was written
since. A frame whose fate is not known (the disk failed as it was written) is looked for before
the next one takes its number. Where damage hides the ends, the writer ends the era and begins
the next: readers of the old ranges get ``RangeDamaged`` until somebody restores the object.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, NamedTuple

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.log.catalog.catalog import Catalog, Collection, Era, Row
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import number_of, row_prefix
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.catalog.transitions import begin_ending, close_and_open
from changefeed.log.directory.directory import COLLECTION, WRITER, open_directory
from changefeed.log.directory.maintenance import Maintenance
from changefeed.log.errors import Damaged, answers_of_feeds
from changefeed.log.format.block_format import lay_out
from changefeed.log.format.flush import TABLE_EVERY, has_table
from changefeed.log.format.pack import Key
from changefeed.log.hashing import VIRTUAL_PARTS
from changefeed.log.producer import Producer
from changefeed.log.protocol.wire import Compaction
from changefeed.log.records import Encoded, Record, placed_record
from changefeed.log.rows.open_row import OpenRow, RowObject, WriterPlace
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.local_store import LocalStore
from changefeed.log.stores.store import create_once, holds
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_IN_PLACE: Final = 128
"""So many records are encoded here: a thread would hold up the loop as long, and cost more."""
_TOGETHER: Final = 10_000
"""A frame takes no more batches once it has so many records."""
_FRAMES_AT_CLOSE: Final = 256
"""So many frames are compacted when their writer closes; fewer are left to the next."""
_CACHE_BYTES: Final = 4 * 1024 * 1024


class _Batch(NamedTuple):
    """Records that are all written, or none: then ``done`` says why."""

    records: Sequence[Record]
    done: asyncio.Future[None]


class EventLogWriter(Producer):
    """The one writer of a log, in this process or any other. Make it with ``open``."""

    def __init__(
        self, home: Path, store: LocalStore, catalogs: CatalogStore, clock: Callable[[], float]
    ) -> None:
        self._home = home
        self._store = store
        self._catalogs = catalogs
        self._clock = clock
        self._writing = asyncio.Lock()
        self._waiting = deque[_Batch]()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._row: OpenRow
        self._unsettled: RowObject | None = None
        self._filled_at = 0
        self._open: Mapping[tuple[int, int], Key] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        keeps_up: bool = True,
    ) -> "AsyncIterator[EventLogWriter]":
        """Write to a log until the block is left; ``keeps_up``: with its ``maintenance``.

        Raise ``FeedUnavailable``, naming the process, while another one writes, and
        ``FeedRefused`` for what is no log, or may not be written.
        """
        home = Path(path)
        store, catalogs = await open_directory(home)
        writer = cls(home, store, catalogs, clock)
        try:
            await writer._take_over()
            async with writer._kept_up() if keeps_up else nullcontext():
                try:
                    yield writer
                finally:
                    await writer._close()
        finally:
            await asyncio.to_thread(store.release)

    @asynccontextmanager
    async def _kept_up(self) -> AsyncIterator[None]:
        """Maintain the log every few seconds, and at the end if much was written."""
        maintenance, began = Maintenance(self._store, self._catalogs), self._row.next
        running = asyncio.create_task(maintenance.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
        if self._row.next - began >= _FRAMES_AT_CLOSE:
            await maintenance.attempt(everything=True)

    async def compact(self) -> Compaction:
        """Make runs of all that is in frames, and delete these, and what is not to be kept."""
        await self.fill_up()
        maintenance = Maintenance(self._store, self._catalogs, by_hand=True)
        with answers_of_feeds():
            await maintenance.step(everything=True)
        return maintenance.done

    @property
    def collection(self) -> Collection:
        """What the catalog says of the log."""
        return self._catalogs.newest.collection(COLLECTION)

    @property
    def era(self) -> Era:
        """The era whose ranges take records. Raise ``FeedRefused`` if brokers write it."""
        era = self._catalogs.newest.era
        if era is None or [x.broker for x in era.rows] != [WRITER]:
            raise FeedRefused(
                f"brokers write the event log at {self._home}: append through them, as in "
                f"brokers://127.0.0.1:7070/{COLLECTION}"
            )
        return era

    async def submit(self, records: Sequence[Record]) -> asyncio.Future[None]:
        if self._closed:
            raise FeedUnavailable("the producer was closed: open another")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not records:
            done.set_result(None)
            return done
        self._waiting.append(_Batch(records, done))
        if self._task is None:
            self._task = asyncio.create_task(self._write_waiting())
        return done

    async def flush(self) -> None:
        if self._waiting:
            await asyncio.wait([x.done for x in self._waiting])

    async def _close(self) -> None:
        """Take no more records, and wait for those that were taken."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def begin_era(self, change: Callable[[Catalog], Catalog] = lambda x: x) -> None:
        """End all ranges that are open; those that follow have the shape that a change says.

        ``change`` is of ``log.catalog.transitions``: ``with_split``, ``with_merge``. What is
        appended meanwhile waits. May be repeated after it was cut off anywhere.
        """
        async with self._writing:
            await self._settle()
            with answers_of_feeds():
                await self._catalogs.change(change)
                await self._end(self.era)

    async def fill_up(self) -> None:
        """Let all records lie before a frame with a table, up to which they can be compacted.

        What is missing to the next such frame are frames without records.
        """
        async with self._writing:
            await self._settle()
            with answers_of_feeds():
                while self._row.ends and self._filled_at != self._row.next - 1:
                    is_last = has_table(self._row.next)
                    if is_last:
                        self._store.begin_files()  # the one before is deleted as a whole
                    await self._create(self._row.make({}))
                    if is_last:
                        self._filled_at = self._row.next - 1

    async def _take_over(self) -> None:
        """Take the row of the newest era, and finish an era that was to end."""
        with answers_of_feeds():
            await self._take_over_row()
            era = self.era
            if era.state != "open" or self._catalogs.newest.reshaping:
                await self._end(era)

    async def _take_over_row(self) -> None:
        """Learn where the row of the newest era ends, and go on there."""
        era = self.era
        grows = await self._store.take_over(row_prefix(era.number, WRITER))
        if (await self._catalogs.refresh()).era == era:
            await self._learn(era, grows=grows)
        else:  # another process has ended it meanwhile
            self._store.release()
            await self._take_over_row()

    async def _reader(self, era: Era) -> RowReader:
        """Return what reads the row of an era, which knows all that is there.

        Here nothing is written behind a seal: only the last object may be one.
        """
        catalog = self._catalogs.newest
        readers = RowReaders(self._store, catalog.identity, _CACHE_BYTES, ahead=TABLE_EVERY)
        reader = readers.row(catalog, era.number, WRITER)
        try:
            await reader.tail()
        except Damaged:
            listed = await self._store.list(row_prefix(era.number, WRITER))
            last = max(number_of(x.key) or 0 for x in listed)
            with suppress(Damaged):
                await reader.tail(last - 1)
            await reader.tail(last)
        return reader

    async def _learn(self, era: Era, *, grows: bool) -> None:
        """Learn from its row where an era's ranges end; if damage hides that, begin another."""
        reader = await self._reader(era)
        ends, newest, knows_ends = None, None, True
        try:
            ends = await reader.ends()
            newest = await reader.header(reader.known)
        except Damaged as error:
            knows_ends = False
            operation = f"read where era {era.number} ends"
            _log.warning("broker.failed", operation=operation, error=str(error))
        is_full = newest is not None and newest.table is not None and not newest.sections
        self._filled_at = reader.known if is_full else 0
        identity, incarnation = self._catalogs.newest.identity, era.rows[0].incarnation
        self._row = OpenRow(
            WriterPlace(identity, era.number, WRITER, incarnation, era.began_us),
            last=reader.known,
            ends=ends,
            written_us=newest.written_us if newest is not None else 0,
            knows_ends=knows_ends,
        )
        ranges = ranges_of(self._catalogs.newest, COLLECTION)
        keys = {x: (COLLECTION, x.id) for x in ranges.open}
        self._open = {place: keys[x] for place, x in ranges.open_by_place.items()}
        assert len(self._open) == VIRTUAL_PARTS * self.collection.parts, (
            f"a key has a range: {len(self._open)} places of {self.collection.parts} parts"
        )
        goes_on = grows and knows_ends and reader.sealed_at is None
        if era.state == "open" and not goes_on:
            await self._end(era)

    async def _end(self, era: Era) -> None:
        """End an era, open the next, and take its row: steps each of which may be repeated."""
        row = Row(broker=WRITER, incarnation=era.rows[0].incarnation)
        await self._catalogs.change(lambda x: begin_ending(x, era.number, [row]))
        reader = await self._reader(era)
        if reader.sealed_at is None:
            await self._create(self._row.make({}, seal=True))
            await reader.tail()
        assert reader.sealed_at is not None, f"the row of era {era.number} is sealed"
        sealed = {WRITER: reader.sealed_at}
        now_us = self._row.now_us()
        await self._catalogs.change(lambda x: close_and_open(x, era.number, sealed, now_us))
        await self._take_over_row()

    async def _write_waiting(self) -> None:
        """Write what waits, all that is there at once, until nothing does."""
        try:
            while self._waiting:
                batches = self._next_batches()
                async with self._writing:
                    await self._write(batches)
                for _ in batches:
                    self._waiting.popleft()
        finally:
            self._task = None

    def _next_batches(self) -> Sequence[_Batch]:
        """Return the batches that the next frame takes, which wait until it is written."""
        taken, size = list[_Batch](), 0
        for x in self._waiting:
            size += len(x.records)
            if taken and size > _TOGETHER:
                break
            taken.append(x)
        return taken

    async def _write(self, batches: Sequence[_Batch]) -> None:
        """Write some batches as one frame, and answer those who wait."""
        answers: Sequence[Exception | None]
        try:
            await self._settle()
            now_us = int(self._clock() * 1_000_000)
            if sum(len(x.records) for x in batches) <= _IN_PLACE:
                frame, answers = self._made(batches, now_us)
            else:
                frame, answers = await asyncio.to_thread(self._made, batches, now_us)
            if frame is not None:
                with answers_of_feeds():
                    await self._create(frame)
        except Exception as error:  # noqa: BLE001 - it is raised by those who wait
            answers = [error] * len(batches)
        for batch, answer in zip(batches, answers, strict=True):
            if batch.done.done():
                continue
            if answer is None:
                batch.done.set_result(None)
            else:
                batch.done.set_exception(answer)

    def _made(
        self, batches: Sequence[_Batch], now_us: int
    ) -> tuple[RowObject | None, Sequence[FeedRefused | None]]:
        """Make one frame of batches. Return it, and why a batch is not in it, for each."""
        together = defaultdict[Key, list[Encoded]](list)
        answers: list[FeedRefused | None] = []
        for batch in batches:
            try:
                grouped = self._encoded(batch.records, now_us)
            except FeedRefused as error:
                answers.append(error)
                continue
            assert sum(map(len, grouped.values())) == len(batch.records), (
                f"{grouped} in a batch"
            )
            for key, encoded in grouped.items():
                together[key].extend(encoded)
            answers.append(None)
        if not together:
            return None, answers
        return self._row.make({key: lay_out(x) for key, x in together.items()}), answers

    def _encoded(
        self, records: Sequence[Record], now_us: int
    ) -> Mapping[Key, Sequence[Encoded]]:
        """Encode records, and group them by the range that takes their key."""
        parts, grouped = self.collection.parts, defaultdict[Key, list[Encoded]](list)
        for record in records:
            place, encoded = placed_record(record, parts, now_us)
            grouped[self._open[place]].append(encoded)
        return grouped

    async def _create(self, frame: RowObject) -> None:
        self._unsettled = frame
        is_ours = await create_once(self._store, frame.key, frame.data)
        self._conclude(frame, is_ours=bool(is_ours))  # what another has deleted was another's

    async def _settle(self) -> None:
        """Find out whether the frame that was written last is there, if that is not known.

        Finish an era that was to end: behind its seal nothing counts.
        """
        frame = self._unsettled
        with answers_of_feeds():
            if frame is not None:
                self._conclude(frame, is_ours=await holds(self._store, frame.key, frame.data))
            if self.era.state != "open":
                await self._end(self.era)
            elif self._row.place.era != self.era.number:
                await self._take_over_row()

    def _conclude(self, frame: RowObject, *, is_ours: bool | None) -> None:
        """Go on behind a frame, or in its place where there is none (``None``)."""
        if is_ours is False:
            raise FeedRefused(
                f"another process has ended the row of the event log at {self._home}: brokers "
                f"have taken it over, or its files were replaced. Open it again"
            )
        self._unsettled = None
        if is_ours:
            self._row.add(frame)


async def compact_log(home: Path) -> Compaction:
    """Make runs of all that is in frames of a log, and delete these. Return what was done.

    Raise ``FeedUnavailable`` while another process writes the log.
    """
    async with EventLogWriter.open(home, keeps_up=False) as writer:
        return await writer.compact()
