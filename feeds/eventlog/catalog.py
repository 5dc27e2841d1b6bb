"""The catalog of a log, read: its partitions, who keeps them, and what follows which."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import aiosqlite

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.eventlog.database import advised, opened
from changefeed.feeds.eventlog.ids import position
from changefeed.feeds.eventlog.schema import CATALOG, FORMAT, RECORDS
from changefeed.feeds.feed import FeedRange, RangeId, Successor


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

    def successors(self, ended: RangeId) -> tuple[Successor, ...]:
        return tuple(
            Successor(range=x.as_range(), start=position(self.identity, 0))
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
        return Catalog(
            home=home,
            identity=identity,
            parts=parts,
            folders=dict(connection.execute("SELECT broker, folder FROM brokers")),
            partitions=tuple(_partitions(connection)),
        )


async def check_records(records: aiosqlite.Connection, catalog: Catalog, broker: int) -> None:
    """Refuse the records of another log, as a directory mixed from two copies has them."""
    path = catalog.folder(broker) / RECORDS
    with advised(path):
        rows = list(await records.execute_fetchall("SELECT identity, format, broker FROM log"))
    if [tuple(x) for x in rows] != [(catalog.identity, FORMAT, broker)]:
        raise FeedRefused(
            f"{path} holds the records of another log than its catalog says: restore the "
            f"whole directory from one copy"
        )


def _not_a_log(home: Path) -> str:
    if home.exists():
        return f"{home} is no event log: it has no {CATALOG}. Give the directory of a log"
    return (
        f"there is no event log at {home}: make one with: changefeed produce ..., or in "
        f"Python with: await create_log({str(home)!r})"
    )


def _identity(connection: sqlite3.Connection, home: Path) -> tuple[str, int]:
    """Check the version before anything else is read: all else may differ."""
    row = connection.execute("SELECT format FROM log").fetchone()
    if row is None:
        raise FeedRefused(f"{home} is no event log: its catalog is empty")
    if row[0] != FORMAT:
        advice = (
            "upgrade changefeed-host"
            if row[0] > FORMAT
            else "read it with the version that wrote it, or make the log anew"
        )
        raise FeedRefused(
            f"the event log at {home} has format {row[0]}, and this version of "
            f"changefeed-host knows format {FORMAT} only: {advice}"
        )
    identity, parts = connection.execute("SELECT identity, parts FROM log").fetchone()
    return identity, parts


def _partitions(connection: sqlite3.Connection) -> Iterator[Partition]:
    parents: dict[int, list[RangeId]] = {}
    for child, parent in connection.execute(
        "SELECT child, id FROM parents JOIN partitions ON number = parent ORDER BY number"
    ):
        parents.setdefault(child, []).append(parent)
    for number, name, era, part, low, high, broker, closed in connection.execute(
        "SELECT number, id, era, part, low, high, broker, closed"
        " FROM partitions ORDER BY number"
    ):
        yield Partition(
            number=number,
            id=RangeId(name),
            era=era,
            part=part,
            low=low,
            high=high,
            broker=broker,
            closed=bool(closed),
            parents=tuple(parents.get(number, ())),
        )
