"""Deleting what the catalog has said for a while to be gone: objects of rows, runs, segments.

``kept_from`` of a row says which of its objects are in runs, or gone; what collections say to
be gone concerns runs and the segments that these name. A reader that knows an older catalog
finds things for as long as the grace is; one that finds something missing looks at the newest.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from changefeed.log.catalog.catalog import Catalog, Truncation
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import compacted_key, number_of, row_prefix
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import Ends
from changefeed.log.format.pack import Key
from changefeed.log.format.segment_file import Segment, slices_in
from changefeed.log.ids import era_in
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore

V = TypeVar("V")
Place = tuple[int, str]
"""A row by its era and its broker."""


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
        self._of_objects = GracePeriod[int](grace)
        self._of_segments = GracePeriod[EraDeletions](grace)

    async def step(self) -> None:
        """Delete what was said to be gone for long enough."""
        await self._delete_objects()
        await self._delete_segments()

    async def _delete_objects(self) -> None:
        now = self._clock()
        for era in self._catalogs.newest.eras:
            for row in era.rows:
                place = era.number, row.broker
                kept_from = self._of_objects.over(place, row.kept_from, now)
                if kept_from is not None:
                    await self._delete_below(place, kept_from)
                    self._of_objects.done(place, kept_from)

    async def _delete_below(self, place: Place, kept_from: int) -> None:
        if kept_from == 1:
            return
        listed = await self._store.list(row_prefix(*place))
        numbers = [(number_of(x.key), x.key) for x in listed]
        gone = [x for n, x in numbers if n is not None and n < kept_from]
        await self._store.delete(gone)
        self.objects += len(gone)

    async def _delete_segments(self) -> None:
        """Delete segments, and runs of which nothing is left."""
        now, catalog = self._clock(), self._catalogs.newest
        for era in catalog.eras:
            said = deletions_of(catalog, era.number)
            for place in ((era.number, x.broker) for x in era.rows) if any(said) else ():
                deletions = self._of_segments.over(place, said, now)
                if deletions is not None:
                    row = self._readers.row(catalog, *place)
                    with suppress(Damaged):  # it is kept until it is restored
                        await delete_segments(self._store, deletions, row)
                        self._of_segments.done(place, deletions)


class GracePeriod(Generic[V]):
    """What is said of rows, and since when, in this process. ``seconds`` are to pass.

    It is never taken back. More may be said of a row meanwhile, again and again: that is next.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Place, tuple[V, float]] = {}
        self._done: dict[Place, V] = {}

    def over(self, row: Place, said: V, now: float) -> V | None:
        """Return what was said of a row for so long, unless that is ``done``."""
        if self._done.get(row) == said:
            return None
        first, since = self._since.setdefault(row, (said, now))
        assert since <= now, f"{row} was said at {since} to be gone, and it is {now}"
        return first if now - since >= self._seconds else None

    def done(self, row: Place, what: V) -> None:
        self._done[row] = what
        del self._since[row]


class EraDeletions(NamedTuple):
    """What the catalog says to be gone of an era: all of some collections, and more."""

    collections: Collection[str]
    gone: Mapping[Key, Truncation]

    def starts(self, ends: Ends) -> Mapping[Key, int]:
        """Return up to where partitions of a row are gone, of those that are."""
        starts = {
            key: x.last
            if key[0] in self.collections
            else self.gone.get(key, Truncation(0, 0)).start
            for key, x in ends.items()
        }
        return {key: start for key, start in starts.items() if start}


def deletions_of(catalog: Catalog, era: int) -> EraDeletions:
    return EraDeletions(
        {x.name for x in catalog.collections if x.since <= era < x.kept_era},
        {
            (x.name, partition): gone
            for x in catalog.collections
            for partition, gone in x.gone.items()
            if era_in(partition) == era
        },
    )


async def delete_segments(store: ObjectStore, deletions: EraDeletions, row: RowReader) -> None:
    """Delete the segments of a row in which nothing is left.

    Runs are looked at up to what is left of all. One of which nothing is left goes after its
    segments, so that a kill in between leaves nothing behind; but the one before the seal
    stays, for what it says of producers. What is gone of a run itself stays with the rest.
    """
    runs = row.runs
    await runs.look()
    newest = await runs.run(runs.starts[-1]) if runs.starts else None
    gone = {} if newest is None else deletions.starts(newest.ends)
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
