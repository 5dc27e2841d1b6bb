"""What lies in the store must be right: catalogs that follow each other, rows without gaps."""

from collections.abc import Mapping
from dataclasses import dataclass

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Catalog, Collection
from changefeed.log.catalog.names import flush_key
from changefeed.log.catalog.ranges import ranges_of, run_lengths
from changefeed.log.format.block_format import BlockChanges
from changefeed.log.format.flush import FlushHeader, decode_header
from changefeed.log.format.pack import Place, Section, cut_columns, header_bytes
from changefeed.log.hashing import VIRTUAL_PARTS
from changefeed.log.ids import era_in
from tests.simulation.progress import Violation

from .checker import Sent, Spot
from .store import Objects

Key = tuple[str, RangeId]


def check_follows(before: Catalog, after: Catalog) -> None:
    """Check that a catalog follows from the one before."""
    what = f"catalog {after.number}"
    old, new = before.era, after.era
    if old is None:
        if new is not None and (new.number, new.state) != (1, "open"):
            raise Violation(f"{what}: the first era is {new}")
    elif new is None or new.number not in (old.number, old.number + 1):
        raise Violation(f"{what}: the era {old.number} was followed by {new}")
    elif new.number == old.number:
        if (old.state, new.state) not in {
            ("open", "open"),
            ("open", "ending"),
            ("ending", "ending"),
        }:
            raise Violation(f"{what}: era {old.number} went from {old.state} to {new.state}")
    elif old.state != "ending" or any(x.sealed_at is None for x in after.eras[-2].rows):
        raise Violation(f"{what}: era {new.number} opened before {old.number} was closed")
    if before.eras[:-1] != after.eras[: len(before.eras) - 1] and not _only_kept(before, after):
        raise Violation(f"{what}: an era that was over has changed")
    _check_division(what, after)


def _only_kept(before: Catalog, after: Catalog) -> bool:
    def bare(catalog: Catalog, count: int) -> list[object]:
        return [
            (
                x.number,
                x.state,
                x.reshaped,
                [(y.broker, y.incarnation, y.sealed_at) for y in x.rows],
            )
            for x in catalog.eras[:count]
        ]

    count = len(before.eras) - 1
    return bare(before, count) == bare(after, count)


def check_collection(before: Collection, after: Collection) -> None:
    """Check that a collection follows from what it was before."""
    what = f"revision {after.revision} of {before.name}"
    if after.revision != before.revision + 1:
        raise Violation(f"{what} was written after {before.revision}")
    if (before.identity, before.parts, before.since) != (
        after.identity,
        after.parts,
        after.since,
    ):
        raise Violation(f"{what}: {before.name} is another collection now")
    if after.kept_era < before.kept_era:
        raise Violation(f"{what}: {before.name} has records again of era {after.kept_era}")
    for name, old in before.gone.items():
        if after.truncation_of(name, era_in(name), old.start, 0).start < old.start:
            raise Violation(f"{what}: {name} has records again that were deleted")


def _check_division(what: str, catalog: Catalog) -> None:
    era = catalog.era
    if era is None:
        return
    brokers = {x.broker for x in era.rows}
    for collection in catalog.collections:
        opened = ranges_of(catalog, collection.name).in_era(era.number)
        if not opened and era.state == "ending":
            continue  # created meanwhile
        covered = sorted((x.part, x.low, x.high) for x in opened)
        next_place = (0, 0)
        for part, low, high in covered:
            if (part, low) != next_place:
                raise Violation(f"{what}: {collection.name} is not covered at {next_place}")
            next_place = (part + 1, 0) if high == VIRTUAL_PARTS - 1 else (part, high + 1)
        if opened and next_place != (collection.parts, 0):
            raise Violation(f"{what}: {collection.name} is not covered at {next_place}")
        if {x.broker for x in opened} - brokers or {x.era for x in opened} - {era.number}:
            raise Violation(f"{what}: {collection.name} is open at none of the era's brokers")
        counts = sorted(sum(x.broker == y for x in opened) for y in brokers)
        if opened and counts != sorted(run_lengths(len(opened), len(brokers))):
            raise Violation(f"{what}: {collection.name} is divided as {counts}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where each record lies, or lay until it was deleted, and the times by partition."""

    places: Mapping[Sent, Spot]
    times: Mapping[Key, list[int]]


def stored_in(objects: Objects, catalog: Catalog) -> Stored:
    """Check all rows, and return what they hold.

    A row has no gap before its seal, and its partitions have none either.
    """
    places: dict[Sent, Spot] = {}
    times: dict[Key, list[int]] = {}
    for era in catalog.eras:
        for row in era.rows:
            check = _RowCheck(objects, catalog, era.number, row.broker)
            for spot, sent in check.spots():
                if sent in places:
                    raise Violation(f"{sent} is stored twice: at {places[sent]} and {spot}")
                places[sent] = spot
            times |= check.times
    return Stored(places=places, times=times)


class _RowCheck:
    """One row from its first object to its end, those that were deleted included."""

    def __init__(self, objects: Objects, catalog: Catalog, era: int, broker: str) -> None:
        row = catalog.era_numbered(era).row(broker)
        assert row is not None
        self._objects = objects
        self._catalog = catalog
        self._row = row
        self._era = era
        self.times: dict[Key, list[int]] = {}
        self._lasts: dict[Key, int] = {}
        self._owned = {
            (c.name, p.id)
            for c in catalog.collections
            for p in ranges_of(catalog, c.name).in_era(era)
            if p.broker == broker
        }

    def spots(self) -> list[tuple[Spot, Sent]]:
        found: list[tuple[Spot, Sent]] = []
        number = 1
        while (data := self._data(number)) is not None:
            place = Place(self._era, self._row.broker, number)
            header = decode_header(data, self._catalog.identity, place)
            if header.seal:
                self._check_table(header)
                break
            if header.incarnation != self._row.incarnation:
                raise Violation(f"{place} is of another incarnation than the era's")
            self._check_table(header)
            for section in header.sections:
                found += self._of_section(data, header, section)
            number += 1
        self._check_end(number)
        return found

    def _data(self, number: int) -> bytes | None:
        return self._objects.ever(flush_key(self._era, self._row.broker, number))

    def _of_section(
        self, data: bytes, header: FlushHeader, section: Section
    ) -> list[tuple[Spot, Sent]]:
        key = (section.collection, section.partition)
        if key not in self._owned:
            raise Violation(f"{header.place} extends {key}, which is not its broker's")
        expected = self._lasts.get(key, 0) + 1
        if section.first != expected:
            raise Violation(f"{key} goes on at {section.first}, not at {expected}")
        self._lasts[key] = section.last
        columns = cut_columns(data[header_bytes(data) + section.offset :], section)
        self.times.setdefault(key, []).extend(memoryview(columns.times).cast("q"))
        changes = BlockChanges(section.partition, section.first, section.count, columns).take(
            section.count
        )
        return [((*key, x.sequence), Sent(key[0], x.key, int(x.body))) for x in changes]

    def _check_end(self, number: int) -> None:
        sealed_at = self._row.sealed_at
        if sealed_at is None:
            return
        if number != sealed_at:
            raise Violation(f"{self._row} ends at {number}, its catalog says {sealed_at}")

    def _check_table(self, header: FlushHeader) -> None:
        """Check where an object says that the partitions of its row end before it."""
        for end in header.table or ():
            last = self._lasts.get((end.collection, end.partition), 0)
            if end.last != last:
                raise Violation(
                    f"{header.place} ends {end.partition} at {end.last}, not {last}"
                )
