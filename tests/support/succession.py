"""Ends partitions of an event log and opens others in their place."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Catalog
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.directory.directory import COLLECTION
from changefeed.log.directory.writer import EventLogWriter


async def replace_partitions(
    path: str | Path, closing: Sequence[RangeId], opening: Sequence[tuple[int, int, int]]
) -> Sequence[RangeId]:
    """End partitions and open others, given as (part, low, high); parts count from 0.

    All others end, too, and go on as they are. Return the ids of the new ones.
    """
    async with EventLogWriter.open(path) as writer:
        return await replaced_by(writer, closing, opening)


async def replaced_by(
    writer: EventLogWriter, closing: Sequence[RangeId], opening: Sequence[tuple[int, int, int]]
) -> Sequence[RangeId]:
    """See ``replace_partitions``: while it is written."""

    def change(catalog: Catalog) -> Catalog:
        found = ranges_of(catalog, COLLECTION)
        lows = [{*x} for x in found.cuts]
        for x in (found.partition(name) for name in closing):
            lows[x.part].discard(x.low)
        for part, low, _ in opening:
            lows[part].add(low)
        cuts = tuple(tuple(sorted(x)) for x in lows)
        if cuts == found.cuts:
            return catalog
        return replace(catalog, number=catalog.number + 1, reshaping={COLLECTION: cuts})

    await writer.begin_era(change)
    wanted = {(part, low) for part, low, _ in opening}
    there = ranges_of(writer._catalogs.newest, COLLECTION).open
    return [x.id for x in there if (x.part, x.low) in wanted]
