"""Compaction at work: objects of a row become runs, in the background.

First the segments, then the run that names them; both are created if there are none, so each
step may be repeated, by any number of brokers at once, and be cut off anywhere. What is deleted
afterwards is decided from the catalog, by ``retention``.
"""

import asyncio
from collections.abc import Callable

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog import Catalog, Row
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import RunPlace, compacted_key, run_of, segments_prefix
from changefeed.log.core_settings import CoreSettings
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import TABLE_EVERY, Ends, FlushHeader, by_key, table_before
from changefeed.log.format.pack import encode_pack
from changefeed.log.format.runs import Run
from changefeed.log.maintenance.compaction import (
    RunEnd,
    bytes_between,
    is_whole,
    rows_of,
)
from changefeed.log.maintenance.deletion import deletions_of
from changefeed.log.maintenance.run_maker import RunContents, RunMaker
from changefeed.log.protocol.wire import Compaction
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.errors import StoreError
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


class Compactor:
    """Compacts the rows that are a broker's, by its name. ``wall_us`` is the time of day.

    ``done`` is what it has compacted since it was made.
    """

    def __init__(
        self,
        name: str,
        incarnation: str,
        catalogs: CatalogStore,
        readers: RowReaders,
        store: ObjectStore,
        *,
        settings: CoreSettings,
        wall_us: Callable[[], int],
    ) -> None:
        self.done = Compaction(broker=name)
        self._name = name
        self._incarnation = incarnation
        self._catalogs = catalogs
        self._readers = readers
        self._store = store
        self._settings = settings
        self._wall_us = wall_us
        self._maker = RunMaker(store, settings.compaction_memory)
        self._one = asyncio.Lock()
        self._finished: set[tuple[int, str]] = set()
        self._looked_at: set[tuple[int, str]] = set()
        self._failing: set[tuple[int, str]] = set()

    async def step(self, *, everything: bool = False) -> bool:
        """Make the runs that are due, a few rows at a time; one that fails stops no other.

        ``everything``: whatever can be compacted is due. Return whether all was done.
        """
        async with self._one:
            catalog = self._catalogs.newest
            rows = rows_of(catalog, self._name, self._incarnation)
            turns = asyncio.Semaphore(self._settings.compactions_at_once)

            async def compact(era: int, row: Row) -> bool:
                async with turns:
                    return await self._row(catalog, era, row, everything=everything)

            async with asyncio.TaskGroup() as tasks:
                found = [tasks.create_task(compact(*x)) for x in rows if not self._is_done(*x)]
        return all(x.result() for x in found)

    def _is_done(self, era: int, row: Row) -> bool:
        return row.sealed_at is not None and (era, row.broker) in self._finished

    async def _row(self, catalog: Catalog, era: int, row: Row, *, everything: bool) -> bool:
        """Make runs of a row until none is due; return whether nothing went wrong.

        What a person can mend is said once until it succeeds.
        """
        what, place = {"operation": "compact", "era": era, "row": row.broker}, (era, row.broker)
        try:
            while await self._run(catalog, era, row, everything=everything):
                catalog = self._catalogs.newest
        except (StoreError, Damaged, FeedRefused) as error:
            if place not in self._failing:
                _log.warning("broker.failed", **what, error=str(error))
            self._failing.add(place)
        except Exception:  # noqa: BLE001 - the broker goes on without
            _log.exception("broker.failed", **what)
        else:
            self._failing.discard(place)
            return True
        self.done = self.done.plus(Compaction(broker=self._name, failed=1))
        return False

    async def _run(self, catalog: Catalog, era: int, row: Row, *, everything: bool) -> bool:
        """Make the next run of a row, if it is due; return whether there may be more."""
        reader = self._readers.row(catalog, era, row.broker)
        done = await self._done(reader, row)
        if reader.runs.final:
            self._finished.add((era, row.broker))
            return False
        first = max(done + 1, reader.kept_from)
        before = await self._before(reader, first)
        end = await self._run_end(reader, first, before, row, everything=everything)
        if end is None:
            if row.sealed_at is not None:
                self._finished.add((era, row.broker))  # there is nothing but the seal
            return False
        starts = deletions_of(catalog, era).starts(end.ends)
        assert end.last >= first > done, f"a run of {first} to {end.last}, after {done}"
        assert reader.sealed_at is None or end.last < reader.sealed_at, (
            f"the seal {reader.sealed_at} stays where it is: {end.last}"
        )
        made = await self._maker.make(reader, first, before, end, starts)
        await self._write(catalog, reader, first, end, made)
        return reader.runs.end > done  # else it was deleted meanwhile

    async def _done(self, reader: RowReader, row: Row) -> int:
        """Return up to where a row is in runs. Those of the row that we write are ours."""
        runs, key = reader.runs, (reader.era, row.broker)
        if row.sealed_at is None and key in self._looked_at:
            await runs.look_behind()
            return runs.end
        self._looked_at.add(key)
        return await runs.look()

    async def _before(self, reader: RowReader, first: int) -> Ends:
        """Return the ends before an object at which a run begins."""
        if first == 1:
            return {}
        run = await reader.runs.last_of(lambda x: x.run.last < first)
        if run is not None and run.run.last == first - 1:
            return run.ends
        return _table(reader, await reader.there(first))

    async def _run_end(
        self, reader: RowReader, first: int, before: Ends, row: Row, *, everything: bool
    ) -> RunEnd | None:
        """Return where the run that begins at an object ends, if one is due."""
        end = reader.known if row.sealed_at is None else row.sealed_at - 1
        if end < first:
            return None
        found: RunEnd | None = None
        for number in range(table_before(first) + TABLE_EVERY, end + 1, TABLE_EVERY):
            ends = _table(reader, await reader.there(number))
            found = RunEnd(last=number - 1, ends=ends, bytes=bytes_between(before, ends))
            if is_whole(found, first, self._settings):
                return found
        if row.sealed_at is not None:
            ends = await reader.ends()
            size = bytes_between(before, ends)
            return RunEnd(last=end, ends=ends, bytes=size, final=True)
        if found is None or everything:
            return found
        age = (self._wall_us() - (await reader.there(first)).written_us) / 1e6
        return found if age >= self._settings.compaction_age else None

    async def _write(
        self,
        catalog: Catalog,
        reader: RowReader,
        first: int,
        end: RunEnd,
        made: RunContents,
    ) -> None:
        """Write a run, unless another broker has written it meanwhile."""
        producers = await reader.producers() if end.final else {}
        run = Run(
            cluster=catalog.identity,
            era=reader.era,
            broker=reader.broker,
            first=first,
            last=end.last,
            written_us=(await reader.there(end.last)).written_us,
            final=end.final,
            ends=tuple(end.ends.values()),
            producers=tuple(producers.values()),
            segments=tuple(made.segments),
        )
        key = compacted_key(reader.era, reader.broker, first)
        data = encode_pack(run, made.packed)
        created = await self._store.create(key, data)
        await reader.runs.look()
        await self._sweep(reader, run)
        if created:
            self._count(run, made, len(data))

    async def _sweep(self, reader: RowReader, made: Run) -> None:
        """Delete segments that no run names: of one that was not finished, or was second."""
        there = await reader.runs.run(made.first)
        if there is None:
            return
        assert there.run.first == made.first, f"{there.run.first} was asked for as {made.first}"
        named = {x.key for x in there.run.segments}
        place = RunPlace(made.era, made.broker, made.first)
        for collection in sorted({x.collection for x in made.segments}):
            listed = await self._store.list(segments_prefix(collection, *place))
            found = {x.key for x in listed if run_of(x.key) == place}
            if needless := sorted(found - named):
                _log.info("compaction.run", segments=needless)
                await self._store.delete(needless)

    def _count(self, run: Run, made: RunContents, size: int) -> None:
        more = Compaction(
            broker=self._name,
            objects=run.last - run.first + 1,
            segments=len(run.segments),
            records=made.records,
            bytes=size + sum(x.size for x in run.segments),
        )
        self.done = self.done.plus(more)
        _log.info(
            "compaction.run",
            era=run.era,
            row=run.broker,
            first=run.first,
            last=run.last,
            segments=len(run.segments),
        )


def _table(reader: RowReader, header: FlushHeader) -> Ends:
    """Return the ends of partitions before an object that has a table."""
    if header.table is None:
        raise Damaged(f"{reader.key(header.number)} has no table")
    return by_key(header.table)
