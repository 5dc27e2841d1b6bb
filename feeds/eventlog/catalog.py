"""The catalog of a log, read: its partitions, who keeps them, and what follows which.

It has no checksums. But what a partition is called says all that else is written of it, and
the parts there are say how many: so a byte that was not written like that is noticed, before
a range is read under another name, or a key is put into another part.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.eventlog.database import opened, typed
from changefeed.feeds.eventlog.ids import part_in, position, range_id
from changefeed.feeds.eventlog.schema import CATALOG, FORMAT, RECORDS
from changefeed.feeds.feed import Child, FeedRange, RangeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A part with an interval of virtual parts, both ends included."""

    number: int
    id: RangeId
    era: int
    part: int
    low: int
    high: int
    broker: int
    closed: bool = False
    parents: tuple[RangeId, ...] = ()

    def as_range(self) -> FeedRange:
        """Bounds are a part and a virtual part, three digits wide so that they sort."""
        return FeedRange(
            id=self.id,
            low=f"p{self.part:02}.v{self.low:03x}",
            high=f"p{self.part:02}.v{self.high + 1:03x}",
            parents=self.parents,
            generation=(self.era, 0),
        )


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The catalog of a log, as it was when it was read."""

    home: Path
    identity: str
    parts: int
    folders: Mapping[int, str]
    partitions: tuple[Partition, ...]

    @cached_property
    def _by_id(self) -> Mapping[RangeId, Partition]:
        return {x.id: x for x in self.partitions}

    @cached_property
    def by_number(self) -> Mapping[int, Partition]:
        return {x.number: x for x in self.partitions}

    @cached_property
    def numbers(self) -> Mapping[tuple[int, int], int]:
        """The number of the open partition for each part and virtual part."""
        return {
            (x.part, virtual): x.number
            for x in self.partitions
            if not x.closed
            for virtual in range(x.low, x.high + 1)
        }

    def partition(self, wanted: RangeId) -> Partition:
        found = self._by_id.get(wanted)
        if found is None:
            raise RangeUnknown(wanted)
        return found

    def holding(self, wanted: RangeId) -> Partition:
        """Return a partition, or the one that a part belongs to."""
        part = part_in(wanted)
        found = self.partition(wanted if part is None else part[0])
        if part is not None and not found.low <= part[1] <= part[2] <= found.high:
            raise RangeUnknown(wanted)
        return found

    def children(self, ended: RangeId) -> tuple[Child, ...]:
        return tuple(
            Child(range=x.as_range(), start=position(self.identity, 0))
            for x in self.partitions
            if ended in x.parents
        )

    def folder(self, broker: int) -> Path:
        return self.home / self.folders[broker]


def read_catalog(home: Path) -> Catalog:
    """Read the catalog of the log in a directory. Blocks: call it in a thread."""
    path = home / CATALOG
    try:
        if not path.is_file():
            raise FeedRefused(_not_a_log(home))
    except OSError as error:
        raise FeedRefused(
            f"{home} cannot be read: {error}. Give this user the right to read it"
        ) from error
    with opened(path, "ro") as connection:
        connection.execute("BEGIN")  # one view of all tables
        identity, parts = _identity(connection, home)
        brokers = connection.execute("SELECT broker, folder FROM brokers")
        catalog = Catalog(
            home=home,
            identity=identity,
            parts=parts,
            folders=dict(typed(brokers, tuple[int, str])),
            partitions=tuple(_partitions(connection)),
        )
    _check(catalog)
    return catalog


def check_records(records: sqlite3.Connection, catalog: Catalog, broker: int) -> None:
    """Refuse the records of another log, as a directory mixed from two copies has them, and
    those of another format. To be called within ``advised``. Blocks.
    """
    path = catalog.folder(broker) / RECORDS
    statement = "SELECT identity, broker, format FROM log"
    rows = typed(records.execute(statement), tuple[str, int, int])
    if [x[:2] for x in rows] != [(catalog.identity, broker)]:
        raise FeedRefused(
            f"{path} holds the records of another log than its catalog says: restore the "
            f"whole directory from one copy"
        )
    _require_format(rows[0][2], path)


def check_records_of(catalog: Catalog, broker: int) -> None:
    """See ``check_records``. Blocks."""
    with opened(catalog.folder(broker) / RECORDS, "ro") as records:
        check_records(records, catalog, broker)


def _not_a_log(home: Path) -> str:
    if home.exists():
        return f"{home} is no event log: it has no {CATALOG}. Give the directory of a log"
    return (
        f"there is no event log at {home}: make one with: changefeed produce ..., or in "
        f"Python with: await create_log({str(home)!r})"
    )


def _identity(connection: sqlite3.Connection, home: Path) -> tuple[str, int]:
    """Check the format before anything else is read: all else may differ."""
    formats = typed(connection.execute("SELECT format FROM log"), tuple[int])
    if not formats:
        raise FeedRefused(f"{home} is no event log: its catalog is empty")
    _require_format(formats[0][0], home)
    rows = connection.execute("SELECT identity, parts FROM log")
    return typed(rows, tuple[str, int])[0]


def _require_format(found: int, path: Path) -> None:
    if found == FORMAT:
        return
    advice = (
        "upgrade changefeed-host"
        if found > FORMAT
        else "create the log again, in another directory"
    )
    raise FeedRefused(
        f"the event log at {path} has format {found}, and this version of changefeed-host "
        f"reads format {FORMAT} only: {advice}"
    )


def _partitions(connection: sqlite3.Connection) -> Iterator[Partition]:
    parents: dict[int, list[RangeId]] = {}
    named = connection.execute(
        "SELECT child, id FROM parents JOIN partitions ON number = parent ORDER BY number"
    )
    for child, parent in typed(named, tuple[int, str]):
        parents.setdefault(child, []).append(RangeId(parent))
    rows = connection.execute(
        "SELECT number, id, era, part, low, high, broker, closed"
        " FROM partitions ORDER BY number"
    )
    for row in typed(rows, _Row):
        yield Partition(
            number=row.number,
            id=RangeId(row.id),
            era=row.era,
            part=row.part,
            low=row.low,
            high=row.high,
            broker=row.broker,
            closed=bool(row.closed),
            parents=tuple(parents.get(row.number, ())),
        )


class _Row(NamedTuple):
    """A row of partitions."""

    number: int
    id: str
    era: int
    part: int
    low: int
    high: int
    broker: int
    closed: int


def _check(catalog: Catalog) -> None:
    """Refuse what cannot have been written."""
    for one in catalog.partitions:
        name = range_id(era=one.era, part=one.part, low=one.low, high=one.high)
        if one.id != name or one.broker not in catalog.folders:
            raise _damaged(catalog, f"what it says of range {one.id!r}")
    if len({x.part for x in catalog.partitions}) != catalog.parts:
        raise _damaged(catalog, f"that the log has {catalog.parts} parts")


def _damaged(catalog: Catalog, what: str) -> FeedRefused:
    return FeedRefused(
        f"{catalog.home / CATALOG} is damaged: {what} is not what was written there. "
        f"Restore the directory from a copy"
    )
