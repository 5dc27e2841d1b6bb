"""Ends partitions of an event log and opens others in their place, as its files say it.

Only brokers end partitions; a log in a directory has none, and its readers and its writer are
tested against logs in which partitions have ended.

First the records: new partitions open, old ones close, in one transaction, so that no append
falls between. Then the catalog, in one transaction: from that moment it counts. In between,
a reader at the end of a closed partition gets empty pages, and a producer is asked to try
again; so it stays if the process dies there, until it is repeated.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.eventlog.catalog import Catalog, Partition, read_catalog
from changefeed.feeds.eventlog.database import opened
from changefeed.feeds.eventlog.ids import range_id
from changefeed.feeds.eventlog.schema import CATALOG, NEW_PARTITION, RECORDS, open_partitions
from changefeed.feeds.feed import RangeId


async def replace_partitions(
    path: str | Path, closing: Sequence[RangeId], opening: Sequence[tuple[int, int, int]]
) -> Sequence[RangeId]:
    """End partitions and open others, given as (part, low, high), in a new era.

    The ended ones become parents of those that hold some of their keys. Return the ids of
    the new ones. All must be of one broker.
    """
    return await asyncio.to_thread(_replace, Path(path), closing, opening)


def _replace(
    home: Path, closing: Sequence[RangeId], opening: Sequence[tuple[int, int, int]]
) -> Sequence[RangeId]:
    catalog = read_catalog(home)
    closed = [catalog.partition(x) for x in closing]
    opened_ = _planned(catalog, closed, opening)
    _change_records(catalog.folder(closed[0].broker) / RECORDS, closed, opened_)
    _change_catalog(home / CATALOG, closed, opened_)
    return [x.id for x in opened_]


def _planned(
    catalog: Catalog, closed: Sequence[Partition], opening: Sequence[tuple[int, int, int]]
) -> Sequence[Partition]:
    era = max(x.era for x in catalog.partitions) + 1
    number = max(x.number for x in catalog.partitions) + 1
    return [
        Partition(
            number=number + n,
            id=range_id(era=era, part=part, low=low, high=high),
            era=era,
            part=part,
            low=low,
            high=high,
            broker=closed[0].broker,
            parents=tuple(
                x.id for x in closed if x.part == part and x.low <= high and low <= x.high
            ),
        )
        for n, (part, low, high) in enumerate(opening)
    ]


def _change_records(
    path: Path, closed: Sequence[Partition], opening: Sequence[Partition]
) -> None:
    with opened(path, "rw") as records:
        records.execute("BEGIN IMMEDIATE")
        for old in closed:
            done = records.execute(
                "UPDATE partitions SET closed = 1 WHERE partition = ? AND closed = 0",
                (old.number,),
            )
            if done.rowcount != 1:
                raise FeedRefused(f"range {old.id!r} has ended already")
        open_partitions(records, [x.number for x in opening])
        records.execute("COMMIT")


def _change_catalog(
    path: Path, closed: Sequence[Partition], opening: Sequence[Partition]
) -> None:
    numbers = {x.id: x.number for x in closed}
    with opened(path, "rw") as catalog:
        catalog.execute("BEGIN IMMEDIATE")
        catalog.execute(
            "INSERT INTO eras VALUES (?, ?)", (opening[0].era, time.time_ns() // 1000)
        )
        catalog.executemany(
            NEW_PARTITION,
            [(x.number, x.id, x.era, x.part, x.low, x.high, x.broker, 0) for x in opening],
        )
        catalog.executemany(
            "INSERT INTO parents VALUES (?, ?)",
            [(x.number, numbers[parent]) for x in opening for parent in x.parents],
        )
        catalog.executemany(
            "UPDATE partitions SET closed = 1 WHERE number = ?", [(x.number,) for x in closed]
        )
        catalog.execute("COMMIT")
