"""Deleting what is older, or more, than a collection keeps, and objects that are in segments.

The catalog says first what is gone (``start`` of partitions, ``kept_from`` of rows), and
after a while the master deletes it: whole objects and segments, oldest first. Cuts fall on
objects with tables and on the ends of runs, so some more than asked for is kept. The age of a
record is that of its object: commit times are the producers' own, and may be of any year.

To delete is for good, and clocks are wrong, so no clock decides alone. An object is as old as
the *lesser* of two ages: from what its broker wrote into it to this master's clock, and from
its creation to our last sign of life by the store's own clock. And where both are one clock,
as in a directory, what is deleted goes on from the oldest that is there, ten times as fast as
time passes here: a clock that jumps by a year costs ten hours in an hour, in which somebody
may notice. To delete late is harmless.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition, Row
from changefeed.feeds.brokers.catalog_store import CatalogStore
from changefeed.feeds.brokers.compacted_row import CompactedRow, KnownRun
from changefeed.feeds.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.flush import FlushHeader, Key, PartitionEnd
from changefeed.feeds.brokers.names import compacted_key, number_of, row_prefix
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.feed import RangeId


class Gone(NamedTuple):
    """What is gone of a partition: sequences up to ``start``, and bytes."""

    start: int
    bytes: int


Cuts = Mapping[Key, Gone]

_FASTER = 10
"""So many times as fast as time passes the border of what is too old may move."""


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
    """What a master deletes. ``clock`` is our own, ``wall_us`` the time of day.

    ``now_key`` is an object that was written a moment ago. ``trusts_clock``: somebody asks for
    it, so the border of what is too old moves at once.
    """

    def __init__(
        self,
        catalogs: CatalogStore,
        readers: RowReaders[RowReader],
        store: ObjectStore,
        settings: CoreSettings,
        *,
        now_key: str,
        clock: Callable[[], float],
        wall_us: Callable[[], int],
        trusts_clock: bool = False,
    ) -> None:
        self._now_key = now_key
        self._trusts_clock = trusts_clock
        self._catalogs = catalogs
        self._readers = readers
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wall_us = wall_us
        self._old: dict[str, tuple[int, float]] = {}
        self._since: dict[tuple[int, str], tuple[int, float]] = {}
        self._deleted: dict[tuple[int, str], int] = {}
        self._said: dict[tuple[int, str], tuple[Mapping[Key, int], float]] = {}
        self._swept: dict[tuple[int, str], Mapping[Key, int]] = {}
        self.deleted = 0
        """Objects of rows that were deleted since the start."""

    async def step(self) -> None:
        """Say in the catalog what is gone by now, and delete what was said long enough."""
        catalog = self._catalogs.newest
        cuts: dict[Key, Gone] = {}
        kept_from = await self._compacted(catalog)
        for collection in catalog.collections:
            if collection.retain_seconds is not None:
                self._merge(cuts, await self._by_age(catalog, collection))
            if collection.retain_bytes is not None:
                self._merge(cuts, await self._by_size(catalog, collection, cuts))
        if cuts:
            for row, number in (await self._kept_from(catalog, cuts)).items():
                kept_from[row] = max(kept_from.get(row, 1), number)
        if cuts or kept_from:
            await self._catalogs.change(
                lambda x: with_cuts(x, cuts, kept_from) if is_as_it_was(catalog, x) else x
            )
        await self._delete()
        await self._delete_segments()

    async def _compacted(self, catalog: Catalog) -> dict[tuple[int, str], int]:
        """Return from where on the objects of rows are kept: those before are in segments.

        What follows on a run has a table, or is the seal: so the ends of a row stay known.
        """
        found: dict[tuple[int, str], int] = {}
        if not self._settings.compaction:
            return found
        for era in catalog.eras:
            for row in era.rows:
                if row.sealed_at is not None and row.kept_from >= row.sealed_at:
                    continue
                compacted = self._readers.row(catalog, era.number, row.broker).compacted
                kept_from = await compacted.look(row.kept_from) + 1
                if kept_from > row.kept_from:
                    found[era.number, row.broker] = kept_from
        return found

    @staticmethod
    def _merge(cuts: dict[Key, Gone], more: Cuts) -> None:
        for key, gone in more.items():
            cuts[key] = max(cuts.get(key, gone), gone)

    async def _row(self, catalog: Catalog, era: int, broker: str) -> RowReader:
        row = self._readers.row(catalog, era, broker)
        await row.tail()
        return row

    async def _by_age(self, catalog: Catalog, collection: Collection) -> Cuts:
        assert collection.retain_us is not None
        keep_us, rows = collection.retain_us, _by_row(collection)
        found: dict[Key, Gone] = {}
        if not rows:
            return found
        until_us = await self._until_us(catalog, collection, rows)
        for (era, broker), partitions in rows.items():
            row = await self._row(catalog, era, broker)
            is_over = row.sealed_at is not None and (
                all(x.last is not None and x.written_us <= until_us for x in partitions)
                and await self._age_us(row.key(row.sealed_at)) >= keep_us
            )
            if is_over:
                for x in partitions:
                    found[collection.name, x.id] = Gone(x.last or 0, x.stored)
            else:
                border = await self._old_border(row, until_us, keep_us)
                found |= _gone_before(border, collection.name, {x.id: x for x in partitions})
        return found

    async def _until_us(self, catalog: Catalog, collection: Collection, rows: "_Rows") -> int:
        """Return the stamp up to which records are too old, as far as this master goes now."""
        assert collection.retain_us is not None
        now, wanted_us = self._clock(), self._wall_us() - collection.retain_us
        reached_us, since = self._old.get(collection.identity, (None, now))
        if reached_us is None:
            reached_us = await self._oldest_us(catalog, min(x for x, _ in rows), rows)
        assert since <= now, f"{collection.name}: what is old was known at {since}, after {now}"
        moved_us = reached_us + int(_FASTER * (now - since) * 1e6)
        until_us = wanted_us if self._trusts_clock else min(wanted_us, moved_us)
        self._old[collection.identity] = (until_us, now)
        return until_us

    async def _oldest_us(self, catalog: Catalog, era: int, rows: "_Rows") -> int:
        """Return when the oldest was written that rows of their first era have still."""
        found = []
        for broker in (y for x, y in rows if x == era):
            row = await self._row(catalog, era, broker)
            await row.compacted.look(row.kept_from)
            for number in row.compacted.starts[:1]:
                run = await row.compacted.run(number)
                found += [] if run is None else [run.run.written_us - 1]
            header = await row.header(row.kept_from)
            found += [] if header is None else [header.written_us]
        return min(found, default=catalog.era_numbered(era).began_us)

    async def _old_border(
        self, row: RowReader, until_us: int, keep_us: int
    ) -> "RowBorder | None":
        """Return the last border before which all is too old, by both clocks."""
        border = await _last_border(row, partial(_is_before, until_us))
        while border is not None:
            short_us = keep_us - await self._age_us(border.key)
            if short_us <= 0:
                break
            until_us = min(until_us - short_us, border.written_us - 1)
            border = await _last_border(row, partial(_is_before, until_us))
        return border

    async def _age_us(self, key: str) -> int:
        """Return how long an object is there at least, by the store's clock; 0 if unknown."""
        now, then = [await self._store.written_at(x) for x in (self._now_key, key)]
        return 0 if now is None or then is None else int((now - then) * 1e6)

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
            border = await _last_border(row, partial(_holds_at_most, share, name, mine))
            found |= _gone_before(border, name, mine)
        return found

    async def _kept_from(self, catalog: Catalog, cuts: Cuts) -> Mapping[tuple[int, str], int]:
        """Return, for each row, the last table before which everything is gone."""
        after = with_cuts(catalog, cuts, {})
        starts = {(c.name, p.id): p.start for c in after.collections for p in c.partitions}

        def is_gone(border: RowBorder) -> bool:
            ends = border.ends
            return all(x.last <= starts.get((x.collection, x.partition), 0) for x in ends)

        found = {}
        for era in catalog.eras:
            for row in era.rows:
                if any(x.startswith(f"e{era.number}.") for _, x in cuts):
                    reader = await self._row(catalog, era.number, row.broker)
                    border = await _last_border(reader, is_gone)
                    found[era.number, row.broker] = 1 if border is None else border.number
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
                assert since <= now, f"{key} was said at {since} to be gone, and it is {now}"
                if number != row.kept_from:
                    self._since[key] = (row.kept_from, now)
                elif now - since >= self._settings.delete_grace:
                    await self._delete_below(era.number, row)
                    self._deleted[key] = row.kept_from

    async def _delete_below(self, era: int, row: Row) -> None:
        listed = await self._store.list(row_prefix(era, row.broker))
        numbers = [(number_of(x.key), x.key) for x in listed]
        gone = [x for n, x in numbers if n is not None and n < row.kept_from]
        await self._store.delete(gone)
        self.deleted += len(gone)

    async def _delete_segments(self) -> None:
        """Delete segments, and runs of which nothing is left, as the catalog has said."""
        now, catalog = self._clock(), self._catalogs.newest
        starts = {(c.name, p.id): p for c in catalog.collections for p in c.partitions}
        said: dict[tuple[int, str], dict[Key, int]] = defaultdict(dict)
        for key, partition in starts.items():
            if partition.start:
                said[partition.era, partition.broker][key] = partition.start
        for place, gone in said.items():
            if self._swept.get(place) == gone:
                continue
            before, since = self._said.get(place, ({}, now))
            assert since <= now, f"{place} was said at {since} to be gone, and it is {now}"
            if before != gone:
                self._said[place] = (gone, now)
            elif now - since >= self._settings.delete_grace:
                row = self._readers.row(catalog, *place)
                compacted = row.compacted
                await compacted.look(row.kept_from)
                await delete_segments(self._store, compacted, gone)
                self._swept[place] = gone


class RowBorder(NamedTuple):
    """A place in a row: what lies before object ``number``.

    ``written_us`` is of no object before it earlier than it was. ``key`` is of an object that
    was created when all before it had been begun.
    """

    key: str
    number: int
    written_us: int
    ends: Sequence[PartitionEnd]


async def _last_border(row: RowReader, holds: Callable[[RowBorder], bool]) -> RowBorder | None:
    """Return the last border of which something holds that holds of those before it.

    Borders are the objects with tables, and the ends of runs where objects are deleted.
    """
    table = await row.last_table(lambda x: holds(_at_table(row, x)))
    if table is not None:
        return _at_table(row, table)
    await row.compacted.look_behind(row.kept_from)
    run = await row.compacted.last_of(lambda x: holds(_at_end(row, x)))
    return None if run is None else _at_end(row, run)


def _is_before(until_us: int, border: RowBorder) -> bool:
    return border.written_us <= until_us


def _at_table(row: RowReader, table: FlushHeader) -> RowBorder:
    key = row.key(table.number)
    return RowBorder(key, table.number, table.written_us, table.table or ())


def _at_end(row: RowReader, found: KnownRun) -> RowBorder:
    run = found.run
    key = compacted_key(row.era, row.broker, run.first)
    return RowBorder(key, run.last + 1, run.written_us, run.ends)


async def delete_segments(
    store: ObjectStore, compacted: CompactedRow, gone: Mapping[Key, int]
) -> None:
    """Delete the segments that end before what is left of their partitions.

    Runs are looked at up to what is left of all. One of which nothing is left goes after its
    segments, so that a kill in between leaves nothing behind; but the one before the seal
    stays, for what it says of producers. What is gone of a run itself stays with the rest.
    """
    for number in compacted.starts:
        found = await compacted.run(number)
        if found is None:
            continue
        segments = found.run.segments
        over = [x.key for x in segments if x.last <= gone.get((x.collection, x.partition), 0)]
        await store.delete(over)
        is_over = all(
            x.last <= gone.get((x.collection, x.partition), 0) for x in found.run.ends
        )
        if is_over and not found.run.final:
            await store.delete([compacted_key(compacted.era, compacted.broker, number)])
        if all(found.last(key) >= start for key, start in gone.items()):
            break


def is_as_it_was(before: Catalog, now: Catalog) -> bool:
    """Whether collections keep, and have, what they did when it was decided what is cut.

    Where another master has cut meanwhile, both cuts together may be too much.
    """
    after = {x.name: (x.retain_seconds, x.retain_bytes) for x in now.collections}
    starts = {(x.name, p.id): p.start for x in now.collections for p in x.partitions}
    return all(
        after[x.name] == (x.retain_seconds, x.retain_bytes)
        and all(starts[x.name, p.id] == p.start for p in x.partitions)
        for x in before.collections
    )


def _holds_at_most(
    most: int, name: str, partitions: Mapping[RangeId, Partition], border: RowBorder
) -> bool:
    """Whether at most so many bytes of some partitions lie before a border."""
    ends = (x for x in border.ends if x.collection == name)
    return sum(x.stored for x in ends if x.partition in partitions) <= most


_Rows = Mapping[tuple[int, str], list[Partition]]
"""By era and broker: the partitions of a collection in that row."""


def _by_row(collection: Collection) -> _Rows:
    """Return the partitions that have something left, by the rows that hold them."""
    found: dict[tuple[int, str], list[Partition]] = defaultdict(list)
    for partition in collection.partitions:
        if partition.last is None or partition.start < partition.last:
            found[partition.era, partition.broker].append(partition)
    return found


def _gone_before(
    border: RowBorder | None, name: str, partitions: Mapping[RangeId, Partition]
) -> Cuts:
    return {
        (name, x.partition): Gone(x.last, x.stored)
        for x in (() if border is None else border.ends)
        if x.collection == name and x.partition in partitions
    }
