"""This broker's writing, era after era: it follows the catalog.

Where the newest era is open and has a place for this incarnation there is a row writer with
the partitions that are ours. When the era is ending the row is sealed; when another one has
come, what was not acknowledged in the old one never will be.
"""

import asyncio
from collections.abc import Callable

from changefeed.log.brokers.notifier import Notifier
from changefeed.log.brokers.row_writer import RowWriter
from changefeed.log.catalog.catalog import Catalog, Era
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.core_settings import CoreSettings
from changefeed.log.rows.open_row import WriterPlace
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.clock import wall_clock_us
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


class EraWriter:
    """``changed`` notifies when records became readable, or an era began or ended here."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        incarnation: str,
        settings: CoreSettings,
        *,
        readers: RowReaders,
        wall_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.changed = Notifier()
        self.lost = 0
        """The last era whose row was ended by somebody else."""
        self.row: RowWriter | None = None
        self._store = store
        self.name = name
        self._incarnation = incarnation
        self._settings = settings
        self._readers = readers
        self._wall_us = wall_us
        self.followed: Catalog | None = None
        """The catalog that this was last adapted to."""
        self.tasks: set[asyncio.Task[None]] = set()

    def writer(self, era: int) -> RowWriter | None:
        """Return what takes records in an era, if that is ours and open."""
        row = self.row
        return row if row is not None and row.place.era == era and row.is_open else None

    def follow(self, catalog: Catalog, tasks: asyncio.TaskGroup) -> None:
        """Adapt to the newest catalog, also where it has another collection only."""
        era, before = catalog.era, self.followed
        if catalog is before:
            return
        assert before is None or before.number <= catalog.number, "catalogs go back"
        self.followed = catalog
        if era is None:
            return
        if self.row is not None and self.row.place.era < era.number:
            self.row.lose()
            self.row = None
        ours = era.row(self.name)
        if ours is not None and ours.incarnation == self._incarnation:
            if era.state == "open":
                self._open(catalog, era, before, tasks)
            elif self.row is not None and self.row.is_open:
                self._begin(tasks, self._seal(self.row))
        self.changed.notify()

    async def seal(self) -> None:
        """Take no more records, write what is in hand, and end the row."""
        if self.row is not None:
            await self._seal(self.row)

    def _open(
        self, catalog: Catalog, era: Era, before: Catalog | None, tasks: asyncio.TaskGroup
    ) -> None:
        """Open collections that the catalog ``before`` had not, or all in a new row."""
        known = set[str]()
        if self.row is None:
            place = WriterPlace(
                cluster=catalog.identity,
                era=era.number,
                broker=self.name,
                incarnation=self._incarnation,
                began_us=era.began_us,
            )
            reader = self._readers.row(catalog, era.number, self.name)

            def on_durable(number: int, data: bytes) -> None:
                reader.add(number, data)
                self.changed.notify()

            self.row = RowWriter(self._store, place, self._settings, on_durable, self._wall_us)
            self._begin(tasks, self._run(self.row))
        elif before is not None:
            known = {x.identity for x in before.collections}
        for collection in catalog.collections:
            if collection.identity not in known:
                opened = ranges_of(catalog, collection.name).in_era(era.number)
                ours = (x.id for x in opened if x.broker == self.name)
                self.row.open(collection.name, ours)

    def _begin(
        self, tasks: asyncio.TaskGroup, coroutine: "asyncio._CoroutineLike[None]"
    ) -> None:
        task = tasks.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, row: RowWriter) -> None:
        """Write a row. What fails in that ends the row, and the next era has another."""
        try:
            await row.run()
        except Exception:  # noqa: BLE001 - the border of a row
            _log.exception("broker.failed", operation="write a row", era=row.place.era)
            row.lose()
        assert not row.is_open, f"row {row.place} is open and has no writer"
        if row.lost:
            self.lost = max(self.lost, row.place.era)
        self.changed.notify()

    async def _seal(self, row: RowWriter) -> None:
        if await row.seal():
            _log.info("broker.era", sealed=row.place.era, at=row.sealed_at)
