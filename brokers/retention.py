"""Deleting what is older, or more, than a collection keeps: whole objects, oldest first.

The catalog says first what is gone (``start`` of partitions, ``kept_from`` of rows), and
after a while the master deletes it. Cuts fall on objects with tables, so up to 63 objects
more than asked for are kept. The age of a record is that of its object, by the clock of the
broker that wrote it: commit times are the producers' own, and may be of any year.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from changefeed.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition, Row
from changefeed.feeds.brokers.catalog_store import CatalogStore
from changefeed.feeds.brokers.flush import FlushHeader
from changefeed.feeds.brokers.names import number_of, row_prefix
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.feed import RangeId

Key = tuple[str, RangeId]


class Gone(NamedTuple):
    """What is gone of a partition: sequences up to ``start``, and bytes."""

    start: int
    bytes: int


Cuts = Mapping[Key, Gone]


def with_cuts(
    catalog: Catalog, cuts: Cuts, kept_from: Mapping[tuple[int, str], int]
) -> Catalog:
    """Say what is gone; what was said before is never taken back."""

    def cut(collection: str, partition: Partition) -> Partition:
        gone = cuts.get((collection, partition.id))
        if gone is None or gone.start <= partition.start:
            return partition
        return replace(partition, start=gone.start, gone=gone.bytes)

    def kept(era: int, row: Row) -> Row:
        number = kept_from.get((era, row.broker), 0)
        return row if number <= row.kept_from else replace(row, kept_from=number)

    collections = tuple(
        replace(c, partitions=tuple(cut(c.name, p) for p in c.partitions))
        for c in catalog.collections
    )
    eras = tuple(
        replace(e, rows=tuple(kept(e.number, x) for x in e.rows)) for e in catalog.eras
    )
    if (collections, eras) == (catalog.collections, catalog.eras):
        return catalog
    number = catalog.number + 1
    return replace(catalog, number=number, collections=collections, eras=eras)


class Retention:
    """What a master deletes. ``clock`` is our own, ``wall_us`` the time of day."""

    def __init__(
        self,
        catalogs: CatalogStore,
        readers: RowReaders,
        store: ObjectStore,
        settings: CoreSettings,
        *,
        clock: Callable[[], float],
        wall_us: Callable[[], int],
    ) -> None:
        self._catalogs = catalogs
        self._readers = readers
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wall_us = wall_us
        self._since: dict[tuple[int, str], tuple[int, float]] = {}
        self._deleted: dict[tuple[int, str], int] = {}

    async def step(self) -> None:
        """Say in the catalog what is gone by now, and delete what was said long enough."""
        catalog = self._catalogs.newest
        cuts: dict[Key, Gone] = {}
        for collection in catalog.collections:
            if collection.retain_seconds is not None:
                self._merge(cuts, await self._by_age(catalog, collection))
            if collection.retain_bytes is not None:
                self._merge(cuts, await self._by_size(catalog, collection, cuts))
        if cuts:
            kept_from = await self._kept_from(catalog, cuts)
            await self._catalogs.change(lambda x: with_cuts(x, cuts, kept_from))
        await self._delete()

    @staticmethod
    def _merge(cuts: dict[Key, Gone], more: Cuts) -> None:
        for key, gone in more.items():
            cuts[key] = max(cuts.get(key, gone), gone)

    async def _row(self, catalog: Catalog, era: int, broker: str) -> RowReader:
        row = self._readers.row(catalog, era, broker)
        await row.tail()
        return row

    async def _by_age(self, catalog: Catalog, collection: Collection) -> Cuts:
        assert collection.retain_seconds is not None
        until_us = self._wall_us() - int(collection.retain_seconds * 1e6)
        found: dict[Key, Gone] = {}
        for (era, broker), partitions in _by_row(collection).items():
            rest = []
            for partition in partitions:
                if partition.last is not None and partition.written_us <= until_us:
                    key = (collection.name, partition.id)
                    found[key] = Gone(partition.last, partition.stored)
                else:
                    rest.append(partition)
            if rest:
                row = await self._row(catalog, era, broker)
                table = await row.last_table(lambda x: x.written_us <= until_us)
                found |= _gone_before(table, collection.name, {x.id: x for x in rest})
        return found

    async def _by_size(self, catalog: Catalog, collection: Collection, cuts: Cuts) -> Cuts:
        """Cut whole eras first, and then objects of the oldest era that is left."""
        assert collection.retain_bytes is not None
        sizes: dict[Key, int] = {}
        for (era, broker), partitions in _by_row(collection).items():
            ends = await (await self._row(catalog, era, broker)).ends()
            for partition in partitions:
                key = (collection.name, partition.id)
                gone = max(partition.gone, cuts.get(key, Gone(0, 0)).bytes)
                sizes[key] = (ends[key].stored if key in ends else 0) - gone
        excess = sum(sizes.values()) - collection.retain_bytes
        found: dict[Key, Gone] = {}
        for partition in collection.partitions:  # in the order of eras
            key = (collection.name, partition.id)
            if excess <= 0 or partition.last is None or sizes.get(key, 0) > excess:
                break
            excess -= sizes.get(key, 0)
            found[key] = Gone(partition.last, partition.stored)
        if excess > 0:
            rest = [x for x in collection.partitions if (collection.name, x.id) not in found]
            found |= await self._oldest_objects(catalog, collection.name, rest, excess)
        return found

    async def _oldest_objects(
        self, catalog: Catalog, name: str, rest: list[Partition], excess: int
    ) -> Cuts:
        """Cut each row of the oldest era that is left by its share of what is too much."""
        oldest = [x for x in rest if x.era == rest[0].era]
        rows = {x.broker for x in oldest}
        found: dict[Key, Gone] = {}
        for broker in rows:
            mine = {x.id: x for x in oldest if x.broker == broker}
            share = excess // len(rows) + sum(x.gone for x in mine.values())

            row = await self._row(catalog, rest[0].era, broker)
            table = await row.last_table(partial(_holds_at_most, share, name, mine))
            found |= _gone_before(table, name, mine)
        return found

    async def _kept_from(self, catalog: Catalog, cuts: Cuts) -> Mapping[tuple[int, str], int]:
        """Return, for each row, the last table before which everything is gone."""
        after = with_cuts(catalog, cuts, {})
        starts = {(c.name, p.id): p.start for c in after.collections for p in c.partitions}

        def is_gone(table: FlushHeader) -> bool:
            ends = table.table or ()
            return all(x.last <= starts.get((x.collection, x.partition), 0) for x in ends)

        found = {}
        for era in catalog.eras:
            for row in era.rows:
                if any(x.startswith(f"e{era.number}.") for _, x in cuts):
                    reader = await self._row(catalog, era.number, row.broker)
                    table = await reader.last_table(is_gone)
                    found[era.number, row.broker] = 1 if table is None else table.number
        return found

    async def _delete(self) -> None:
        """Delete what the catalog has said to be gone for long enough."""
        now = self._clock()
        for era in self._catalogs.newest.eras:
            for row in era.rows:
                key = (era.number, row.broker)
                if row.kept_from == self._deleted.get(key, 1):
                    continue
                number, since = self._since.get(key, (0, now))
                if number != row.kept_from:
                    self._since[key] = (row.kept_from, now)
                elif now - since >= self._settings.delete_grace:
                    await self._delete_below(era.number, row)
                    self._deleted[key] = row.kept_from

    async def _delete_below(self, era: int, row: Row) -> None:
        listed = await self._store.list(row_prefix(era, row.broker))
        numbers = [(number_of(x.key), x.key) for x in listed]
        await self._store.delete([x for n, x in numbers if n is not None and n < row.kept_from])


def _holds_at_most(
    most: int, name: str, partitions: Mapping[RangeId, Partition], table: FlushHeader
) -> bool:
    """Whether at most so many bytes of some partitions lie before an object with a table."""
    ends = (x for x in table.table or () if x.collection == name)
    return sum(x.stored for x in ends if x.partition in partitions) <= most


def _by_row(collection: Collection) -> Mapping[tuple[int, str], list[Partition]]:
    """Return the partitions that have something left, by the rows that hold them."""
    found: dict[tuple[int, str], list[Partition]] = defaultdict(list)
    for partition in collection.partitions:
        if partition.last is None or partition.start < partition.last:
            found[partition.era, partition.broker].append(partition)
    return found


def _gone_before(
    table: FlushHeader | None, name: str, partitions: Mapping[RangeId, Partition]
) -> Cuts:
    """Return what lies before an object with a table."""
    ends = () if table is None else table.table or ()
    return {
        (name, x.partition): Gone(x.last, x.stored)
        for x in ends
        if x.collection == name and x.partition in partitions
    }
