"""Deleting what the catalog has said for a while to be gone: objects of rows, runs, segments.

``kept_from`` of a row says which of its objects are in runs, or gone; what collections say to
be gone concerns runs and the segments that these name. A reader that knows an older catalog
finds things for as long as the grace is; one that finds something missing looks at the newest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from changefeed.log.catalog.catalog import Catalog, Row, Truncation
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import compacted_key, number_of, row_prefix
from changefeed.log.format.pack import Key
from changefeed.log.format.segment_file import Segment, slices_in
from changefeed.log.ids import era_in
from changefeed.log.maintenance.grace_period import GracePeriod
from changefeed.log.rows.extents import starts_in
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore


class Deletion:
    """What one process deletes. ``grace`` is in seconds of ``clock``."""

    def __init__(
        self,
        catalogs: CatalogStore,
        readers: RowReaders,
        store: ObjectStore,
        grace: float,
        clock: Callable[[], float],
    ) -> None:
        self.objects = 0
        """Objects of rows that were deleted since the start."""
        self._catalogs = catalogs
        self._readers = readers
        self._store = store
        self._clock = clock
        self._of_objects = GracePeriod[tuple[int, str], int](grace)
        self._of_segments = GracePeriod[tuple[int, str], EraDeletions](grace)
        self._deleted: dict[tuple[int, str], int] = {}
        self._swept: dict[tuple[int, str], EraDeletions] = {}

    async def step(self) -> None:
        """Delete what was said to be gone for long enough."""
        await self._delete_objects()
        await self._delete_segments()

    async def _delete_objects(self) -> None:
        """Delete what the catalog has said to be gone for long enough."""
        now = self._clock()
        for era in self._catalogs.newest.eras:
            for row in era.rows:
                key = (era.number, row.broker)
                if row.kept_from == self._deleted.get(key, 1):
                    continue
                if self._of_objects.is_over(key, row.kept_from, now):
                    await self._delete_below(era.number, row)
                    self._deleted[key] = row.kept_from

    async def _delete_below(self, era: int, row: Row) -> None:
        listed = await self._store.list(row_prefix(era, row.broker))
        numbers = [(number_of(x.key), x.key) for x in listed]
        gone = [x for n, x in numbers if n is not None and n < row.kept_from]
        await self._store.delete(gone)
        self.objects += len(gone)

    async def _delete_segments(self) -> None:
        """Delete segments, and runs of which nothing is left, as the catalog has said."""
        now, catalog = self._clock(), self._catalogs.newest
        for era in catalog.eras:
            deletions = deletions_of(catalog, era.number)
            for place in ((era.number, x.broker) for x in era.rows) if any(deletions) else ():
                if self._swept.get(place) == deletions:
                    continue
                if self._of_segments.is_over(place, deletions, now):
                    await delete_segments(
                        self._store, catalog, self._readers.row(catalog, *place)
                    )
                    self._swept[place] = deletions


class EraDeletions(NamedTuple):
    """What the catalog says to be gone of an era: all of some collections, and more."""

    collections: Sequence[str]
    gone: Mapping[Key, Truncation]


def deletions_of(catalog: Catalog, era: int) -> EraDeletions:
    return EraDeletions(
        [x.name for x in catalog.collections if x.since <= era < x.kept_era],
        {
            (x.name, partition): gone
            for x in catalog.collections
            for partition, gone in x.gone.items()
            if era_in(partition) == era
        },
    )


async def delete_segments(store: ObjectStore, catalog: Catalog, row: RowReader) -> None:
    """Delete the segments of a row in which nothing is left.

    Runs are looked at up to what is left of all. One of which nothing is left goes after its
    segments, so that a kill in between leaves nothing behind; but the one before the seal
    stays, for what it says of producers. What is gone of a run itself stays with the rest.
    """
    runs = row.runs
    await runs.look(row.kept_from)
    newest = await runs.run(runs.starts[-1]) if runs.starts else None
    gone = {} if newest is None else starts_in(catalog, row.era, newest.ends)
    for number in runs.starts if gone else ():
        found = await runs.run(number)
        if found is None:
            continue
        over = [x.key for x in found.run.segments if _is_gone(x, gone)]
        await store.delete(over)
        is_over = all(
            x.last <= gone.get((x.collection, x.partition), 0) for x in found.run.ends
        )
        if is_over and not found.run.final:
            await store.delete([compacted_key(runs.era, runs.broker, number)])
        if all(found.last(key) >= start for key, start in gone.items()):
            break


def _is_gone(segment: Segment, gone: Mapping[Key, int]) -> bool:
    """Whether all is gone that a segment holds."""
    return all(
        x.last <= gone.get((segment.collection, x.slice.range_id), 0)
        for x in slices_in(segment)
    )
