"""The master at work: reads what there is, lets ``master.next_step`` decide, does it."""

from collections.abc import Callable, Mapping

from changefeed.log.brokers.catalog_watch import CatalogWatch
from changefeed.log.brokers.master import Step, is_master, next_step
from changefeed.log.brokers.members import Members, Membership
from changefeed.log.catalog.catalog import Catalog, Era
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.transitions import (
    begin_ending,
    close_and_open,
    open_first_era,
    without_members,
)
from changefeed.log.core_settings import CoreSettings
from changefeed.log.rows.open_row import OpenRow, WriterPlace
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


class EraMaster:
    """What one broker does when it is the master."""

    def __init__(
        self,
        catalogs: CatalogStore,
        readers: RowReaders,
        members: Members,
        store: ObjectStore,
        settings: CoreSettings,
        *,
        watch: CatalogWatch,
        wall_us: Callable[[], int],
    ) -> None:
        self.acting = False
        self._catalogs = catalogs
        self._readers = readers
        self._members = members
        self._store = store
        self._settings = settings
        self._watch = watch
        self._wall_us = wall_us
        self._looked_at = 0

    def membership(self) -> Membership:
        era = self._catalogs.newest.era
        placed = {x.broker: x.incarnation for x in era.rows} if era is not None else {}
        return self._members.membership(placed)

    async def run(self) -> None:
        """Do what there is to be done, until nothing is left that can be done now."""
        while await self.step() or self._catalogs.newest.number != self._looked_at:
            pass

    async def step(self) -> bool:
        """Do what a master does next; return whether anything was done."""
        self._looked_at = self._catalogs.newest.number
        membership = self.membership()
        self.acting = is_master(self._members.heartbeat.name, membership)
        if not self.acting:
            return False
        catalog = self._catalogs.newest
        sealed = await self._sealed(catalog)
        step = next_step(
            catalog,
            membership,
            self._settings,
            sealed=sealed.keys(),
            ending_for=self._watch.ending_for() or 0.0,
        )
        if step is None:
            return await self._forget_the_dead(catalog)
        await self._do(step, catalog, sealed)
        return True

    async def _sealed(self, catalog: Catalog) -> Mapping[str, int]:
        """Return the seals of an ending era's rows that have them, by their brokers."""
        era, found = catalog.era, dict[str, int]()
        if era is None or era.state != "ending":
            return found
        for row in era.rows:
            reader = self._readers.row(catalog, era.number, row.broker)
            await reader.tail(self._hint(era, row.broker))
            if reader.sealed_at is not None:
                found[row.broker] = reader.sealed_at
        return found

    def _hint(self, era: Era, broker: str) -> int:
        """Return what a broker has acknowledged, as it said; it may be dead by now."""
        heartbeat = self._members.seen.get(broker)
        return heartbeat.durable if heartbeat is not None and heartbeat.era == era.number else 0

    async def _do(self, step: Step, catalog: Catalog, sealed: Mapping[str, int]) -> None:
        """Do a step that was decided on a catalog, whatever the newest is by now."""
        brokers = ", ".join(step.brokers)
        _log.info("broker.era", step=step.name, era=step.era, brokers=brokers)
        now_us, change = self._wall_us(), self._catalogs.change
        match step.name:
            case "open_first_era":
                await change(lambda x: open_first_era(x, step.rows, now_us))
            case "begin_ending":
                await change(lambda x: begin_ending(x, step.era, step.rows))
            case "seal_rows":
                for broker in step.brokers:
                    await self._seal(catalog, broker)
            case "close_and_open":
                await change(lambda x: close_and_open(x, step.era, sealed, now_us))

    async def _forget_the_dead(self, catalog: Catalog) -> bool:
        """Drop dead members that own no row from the catalog; return whether there were any.

        A broker that comes back adds itself again.
        """
        placed = {x.broker for x in (() if catalog.era is None else catalog.era.rows)}
        gone = (self._members.dead - placed) & {*catalog.members}
        if gone:
            await self._catalogs.change(lambda x: without_members(x, gone))
        return bool(gone)

    async def _seal(self, catalog: Catalog, broker: str) -> None:
        """End the row of a broker at the first number that is free."""
        era = catalog.era
        assert era is not None
        reader = self._readers.row(catalog, era.number, broker)
        await reader.tail(self._hint(era, broker))
        place = WriterPlace(
            catalog.identity, era.number, broker, self._members.heartbeat.incarnation
        )
        while reader.sealed_at is None:
            row = OpenRow(place, self._wall_us, last=reader.known, knows_ends=False)
            made = row.make({}, seal=True)
            await self._store.create(made.key, made.data)
            # Another master may have been first, and the row's beginning be deleted by now.
            reader = self._readers.row(await self._catalogs.refresh(), era.number, broker)
            await reader.tail()
