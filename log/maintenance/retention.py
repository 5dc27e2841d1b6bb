"""Cutting what is older, or more, than a collection keeps.

A collection says first what is to be gone, oldest first. After a while it is, if that is still
right, and after another while it is deleted (``deletion``). Cuts fall on objects with tables
and on the ends of runs, so some more than asked for is kept. The age of a record is that of its
object: commit times are the producers' own, and may be of any year.

To delete is for good, and clocks are wrong, so no clock decides alone. An object is as old as
the *lesser* of two ages: from what its broker wrote into it to this master's clock, and from
its creation to our last sign of life by the store's own clock. And where both are one clock,
as in a directory, the border of what is too old begins at the oldest that is there, and moves
ten times as fast as time passes here: a clock that jumps by a year costs ten hours in an hour,
in which somebody may notice. The collection keeps it, for the master that comes next. To
delete late is harmless.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Catalog, Collection, PlannedTruncation, Truncation
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.ranges import Partition, Ranges, ranges_of
from changefeed.log.catalog.transitions import with_kept_from
from changefeed.log.core_settings import CoreSettings
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import Ends, by_key
from changefeed.log.ids import era_in
from changefeed.log.maintenance.deletion import Deletion, EraDeletions, Place, deletions_of
from changefeed.log.maintenance.truncation_points import TruncationPoint, last_point
from changefeed.log.rows.extents import Extent, extent_of
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore

Truncations = Mapping[RangeId, Truncation]
"""What is gone of partitions of one collection."""

_FASTER = 10
"""So many times as fast as time passes the border of what is too old may move."""
_STORED_EACH = 100
"""The point is stored where it has moved by such a part of the time that is kept."""


def with_truncations(
    collection: Collection, cuts: Truncations, kept_era: int = 1
) -> Collection:
    """Say what is gone, and before which era all is; what was said is never taken back."""
    gone = {**collection.gone}
    for partition, more in cuts.items():
        if more.start > gone.get(partition, Truncation(0, 0)).start:
            gone[partition] = more
    kept_era = max(kept_era, collection.kept_era)
    left = {x: y for x, y in gone.items() if era_in(x) >= kept_era}
    return replace(collection, kept_era=kept_era, gone=left)


class Retention:
    """What a master deletes. ``clock`` is our own, ``wall_us`` the time of day.

    ``now_key`` is an object that was written a moment ago. ``trusts_clock``: somebody asks for
    it, so the border of what is too old moves at once.
    """

    def __init__(
        self,
        catalogs: CatalogStore,
        readers: RowReaders,
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
        self._cuts: dict[str, tuple[PlannedTruncation, float]] = {}
        self._reckoned: dict[int, EraDeletions] = {}
        self._deletion = Deletion(catalogs, readers, store, settings.delete_grace, clock)

    @property
    def deleted(self) -> int:
        """Objects of rows that were deleted since the start."""
        return self._deletion.objects

    async def step(self) -> None:
        """Say what is gone by now, and delete what was said long enough."""
        await self._catalogs.announce()
        catalog = self._catalogs.newest
        for collection in catalog.collections:
            wanted = await self._cut(catalog, replace(collection, cut=None))
            following = self._with_border(self._following(collection, wanted))
            if following != collection:
                await self._catalogs.change_collection(
                    collection.name, partial(if_as_it_was, collection, following)
                )
        kept_from = await self._kept_from(self._catalogs.newest)
        if kept_from:
            await self._catalogs.change(lambda x: with_kept_from(x, kept_from))
        await self._deletion.step()

    def _following(self, collection: Collection, wanted: Collection) -> Collection:
        """Return what a collection says next, if all that it is not to keep were gone.

        What is to be gone is so after the grace, if it is still not to be kept by then: a
        clock may have been set right, or people may have changed their minds.
        """
        cut = collection.cut
        if cut is None:
            cut = PlannedTruncation(kept_era=wanted.kept_era, gone=wanted.gone)
            if (cut.kept_era, cut.gone) == (collection.kept_era, collection.gone):
                return collection
        elif not _is_within(cut, wanted):
            return replace(collection, cut=None)
        now = self._clock()
        before, since = self._cuts.get(collection.identity, (None, now))
        if before != cut:
            self._cuts[collection.identity] = (cut, now)
        elif collection.cut is not None and now - since >= self._settings.delete_grace:
            return replace(collection, kept_era=cut.kept_era, gone=cut.gone, cut=None)
        return replace(collection, cut=cut)

    def _with_border(self, collection: Collection) -> Collection:
        """Let a collection say how far the border has come, where it has moved by much."""
        if collection.retain_us is None or collection.identity not in self._old:
            return collection
        until_us, _ = self._old[collection.identity]
        moved_us = abs(until_us - (collection.old_us or 0))
        is_much = moved_us > collection.retain_us // _STORED_EACH
        return replace(collection, old_us=until_us) if is_much else collection

    async def _cut(self, catalog: Catalog, collection: Collection) -> Collection:
        """Return a collection without what it is not to keep."""
        old: Truncations = {}
        much: Truncations = {}
        cut = collection
        if collection.retain_seconds is not None:
            old = await self._by_age(catalog, cut)
            cut = with_truncations(cut, old)
        if collection.retain_bytes is not None:
            much = await self._by_size(catalog, cut)
            cut = with_truncations(cut, much)
        if not (old or much):
            return collection
        return with_truncations(cut, {}, await self._kept_era(catalog, cut))

    async def _row(self, catalog: Catalog, era: int, broker: str) -> RowReader:
        row = self._readers.row(catalog, era, broker)
        await row.tail()
        return row

    async def _point(
        self, catalog: Catalog, row: Place, holds: Callable[[TruncationPoint], bool]
    ) -> TruncationPoint | None:
        """Return ``last_point`` of a row; none of one that is damaged: it is kept."""
        with suppress(Damaged):
            return await last_point(await self._row(catalog, *row), holds)
        return None

    async def _left(self, catalog: Catalog, collection: Collection) -> "_Left":
        """Return the partitions that have something left, the oldest first.

        Those of a row that is damaged are left out: late deletion is harmless.
        """
        found: list[tuple[Partition, Extent]] = []
        ranges = ranges_of(catalog, collection.name)
        for era in ranges.eras:
            if era < collection.kept_era:
                continue
            for x, there in await self._extents(catalog, collection, ranges, era):
                if there is not None and (era == ranges.newest or there.start < there.last):
                    found.append((x, there))
        return found

    async def _extents(
        self, catalog: Catalog, collection: Collection, ranges: Ranges, era: int
    ) -> Sequence[tuple[Partition, Extent | None]]:
        """Return what there is of the partitions of an era; ``None`` in a damaged row."""
        found: list[tuple[Partition, Extent | None]] = []
        rows: dict[str, Ends | None] = {}
        for x in ranges.in_era(era):
            if x.broker not in rows:
                rows[x.broker] = await self._ends(catalog, era, x.broker)
            ends = rows[x.broker]
            found.append((x, None if ends is None else extent_of(collection, x, ends)))
        return found

    async def _ends(self, catalog: Catalog, era: int, broker: str) -> Ends | None:
        with suppress(Damaged):
            return await (await self._row(catalog, era, broker)).ends()
        return None

    async def _by_age(self, catalog: Catalog, collection: Collection) -> Truncations:
        assert collection.retain_us is not None
        keep_us = collection.retain_us
        rows = _by_row(await self._left(catalog, collection))
        found: dict[RangeId, Truncation] = {}
        if not rows:
            return found
        until_us = await self._until_us(catalog, collection, rows)
        for place, there in rows.items():
            row = self._readers.row(catalog, *place)
            is_over = row.sealed_at is not None and (
                all(x.written_us <= until_us for x in there.values())
                and await self._age_us(row.key(row.sealed_at)) >= keep_us
            )
            if is_over:
                found |= {name: Truncation(x.last, x.stored) for name, x in there.items()}
            else:
                point = await self._old_point(catalog, place, until_us, keep_us)
                found |= _gone_before(point, collection.name, there)
        return found

    async def _until_us(self, catalog: Catalog, collection: Collection, rows: "_Rows") -> int:
        """Return the stamp up to which records are too old, as far as this master goes now."""
        assert collection.retain_us is not None
        now, wanted_us = self._clock(), self._wall_us() - collection.retain_us
        if collection.identity not in self._old:
            oldest_us = await self._oldest_us(catalog, min(x for x, _ in rows), rows)
            self._old[collection.identity] = max(oldest_us, collection.old_us or 0), now
        reached_us, since = self._old[collection.identity]
        assert since <= now, f"{collection.name}: what is old was known at {since}, after {now}"
        moved_us = reached_us + int(_FASTER * (now - since) * 1e6)
        until_us = wanted_us if self._trusts_clock else min(wanted_us, moved_us)
        self._old[collection.identity] = (until_us, now)
        return until_us

    async def _oldest_us(self, catalog: Catalog, era: int, rows: "_Rows") -> int:
        """Return when the oldest was written that rows of their first era have still."""
        found = []
        for broker in (y for x, y in rows if x == era):
            with suppress(Damaged):
                row = await self._row(catalog, era, broker)
                await row.runs.look()
                for number in row.runs.starts[:1]:
                    run = await row.runs.run(number)
                    found += [] if run is None else [run.run.written_us - 1]
                header = await row.header(row.kept_from)
                found += [] if header is None else [header.written_us]
        return min(found, default=catalog.era_numbered(era).began_us)

    async def _old_point(
        self, catalog: Catalog, row: Place, until_us: int, keep_us: int
    ) -> TruncationPoint | None:
        """Return the last point before which all is too old, by both clocks."""
        while True:
            point = await self._point(catalog, row, partial(_is_before, until_us))
            if point is None:
                return None
            short_us = keep_us - await self._age_us(point.key)
            if short_us <= 0:
                return point
            until_us = min(until_us - short_us, point.written_us - 1)

    async def _age_us(self, key: str) -> int:
        """Return how long an object is there at least, by the store's clock; 0 if unknown."""
        now, then = [await self._store.written_at(x) for x in (self._now_key, key)]
        return 0 if now is None or then is None else int((now - then) * 1e6)

    async def _by_size(self, catalog: Catalog, collection: Collection) -> Truncations:
        """Cut whole eras first, and then objects of the oldest era that is left."""
        assert collection.retain_bytes is not None
        left = await self._left(catalog, collection)
        excess = sum(x.bytes for _, x in left) - collection.retain_bytes
        newest = 0 if catalog.era is None else catalog.era.number
        found: dict[RangeId, Truncation] = {}
        for partition, x in left:
            if excess <= 0 or partition.era == newest or x.bytes > excess:
                break
            excess -= x.bytes
            found[partition.id] = Truncation(x.last, x.stored)
        if excess > 0:
            rest = [x for x in left if x[0].id not in found]
            found |= await self._oldest_objects(catalog, collection.name, rest, excess)
        return found

    async def _oldest_objects(
        self, catalog: Catalog, name: str, rest: "_Left", excess: int
    ) -> Truncations:
        """Cut each row of the oldest era that is left by its share of what is too much."""
        oldest = _by_row([x for x in rest if x[0].era == rest[0][0].era])
        found: dict[RangeId, Truncation] = {}
        for row, there in oldest.items():
            share = excess // len(oldest) + sum(x.gone for x in there.values())
            holds = partial(_holds_at_most, share, name, there)
            found |= _gone_before(await self._point(catalog, row, holds), name, there)
        return found

    async def _kept_era(self, catalog: Catalog, cut: Collection) -> int:
        """Return the era before which all of a collection is gone."""
        ranges = ranges_of(catalog, cut.name)
        kept_era = cut.kept_era
        for era in ranges.eras[:-1]:
            if era >= kept_era:
                there = await self._extents(catalog, cut, ranges, era)
                if any(x is None or x.start < x.last for _, x in there):
                    break  # something is left of it, or may be
                kept_era = era + 1
        return kept_era

    async def _kept_from(self, catalog: Catalog) -> Mapping[Place, int]:
        """Return from where on the objects of rows are kept, where that has moved.

        Those before are in runs, or gone. What follows on a run has a table, or is the seal:
        so the ends of a row stay known.
        """
        found: dict[Place, int] = {}
        for era in catalog.eras:
            deletions = deletions_of(catalog, era.number)
            is_new = any(deletions) and self._reckoned.get(era.number) != deletions
            for row in era.rows:
                place, number = (era.number, row.broker), 1
                if is_new:
                    point = await self._point(catalog, place, partial(_is_gone, deletions))
                    number = 1 if point is None else point.number
                if self._settings.compaction and not row.is_gone:
                    with suppress(Damaged):
                        runs = self._readers.row(catalog, *place).runs
                        number = max(number, await runs.look() + 1)
                if number > row.kept_from:
                    found[place] = number
            if is_new:
                self._reckoned[era.number] = deletions
        return found


def _is_gone(deletions: EraDeletions, point: TruncationPoint) -> bool:
    """Whether all that lies before a point of a row is gone."""
    ends = by_key(point.ends)
    starts = deletions.starts(ends)
    return all(x.last <= starts.get(key, 0) for key, x in ends.items())


def _is_before(until_us: int, point: TruncationPoint) -> bool:
    return point.written_us <= until_us


def _is_within(cut: PlannedTruncation, wanted: Collection) -> bool:
    """Whether all of a cut is not to be kept still."""
    return cut.kept_era <= wanted.kept_era and all(
        era_in(x) < wanted.kept_era or y.start <= wanted.gone.get(x, Truncation(0, 0)).start
        for x, y in cut.gone.items()
    )


def if_as_it_was(before: Collection, cut: Collection, now: Collection) -> Collection:
    """Cut what keeps, and has, what it did when it was decided what is cut.

    Where another master has cut meanwhile, both cuts together may be too much.
    """
    return cut if now == before else now


def _holds_at_most(most: int, name: str, there: "_Extents", point: TruncationPoint) -> bool:
    """Whether at most so many bytes of some partitions lie before a point."""
    ends = (x for x in point.ends if x.collection == name)
    return sum(x.stored for x in ends if x.partition in there) <= most


_Left = Sequence[tuple[Partition, Extent]]
_Extents = Mapping[RangeId, Extent]
_Rows = Mapping[Place, _Extents]
"""By era and broker: the partitions of a collection in that row."""


def _by_row(left: _Left) -> _Rows:
    found: dict[Place, dict[RangeId, Extent]] = defaultdict(dict)
    for partition, there in left:
        found[partition.era, partition.broker][partition.id] = there
    return found


def _gone_before(point: TruncationPoint | None, name: str, there: _Extents) -> Truncations:
    return {
        x.partition: Truncation(x.last, x.stored)
        for x in (() if point is None else point.ends)
        if x.collection == name and x.partition in there
    }
