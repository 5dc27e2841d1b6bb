"""What must hold, whatever goes wrong: looked at as it happens, and at the end."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from changefeed.brokers.division import run_lengths
from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition, decode_catalog
from changefeed.feeds.brokers.flush import (
    FlushHeader,
    Place,
    decode_header,
    section_columns,
)
from changefeed.feeds.brokers.names import CATALOGS, number_of, row_prefix
from changefeed.feeds.eventlog.block_format import changes_of
from changefeed.feeds.eventlog.hashing import VIRTUAL_PARTS
from changefeed.feeds.eventlog.records import Record
from changefeed.feeds.feed import Change, RangeId

from .store import Objects


class Violation(AssertionError):
    """Something that must never happen did."""


class Sent(NamedTuple):
    """A record of a producer; ``number`` counts up by key."""

    collection: str
    key: str
    number: int

    def record(self) -> Record:
        return Record(key=self.key, body=str(self.number).encode())


Spot = tuple[str, RangeId, int]


class Checker:
    """``reader`` names who has read; each must read all."""

    def __init__(self) -> None:
        self.all_sent: set[Sent] = set()
        self.stored: dict[Sent, tuple[RangeId, int | None]] = {}
        self._at: dict[Spot, Sent] = {}
        self._read: dict[str, dict[Sent, Spot]] = defaultdict(dict)
        self._last_of_key: dict[tuple[str, str, str], int] = defaultdict(int)

    # as it happens

    def sent(self, sent: Sent) -> None:
        self.all_sent.add(sent)

    def acknowledged(self, sent: Sent, partition: RangeId, sequence: int | None) -> None:
        if sent in self.stored:
            raise Violation(f"{sent} was acknowledged twice")
        self.stored[sent] = (partition, sequence)
        if sequence is not None:
            self._is_at((sent.collection, partition, sequence), sent)

    def reached(self, producer: str, partition: RangeId, first: int, reached: int) -> None:
        """What a producer was answered as reached never falls behind what it knows."""
        if reached < first - 1:
            raise Violation(
                f"{producer} has {first - 1} records acknowledged in {partition}, and is "
                f"answered that {reached} are stored"
            )

    def read(self, reader: str, collection: str, change: Change) -> None:
        sent = Sent(collection, change.key, int(change.body))
        spot = (collection, change.range_id, change.sequence)
        if sent not in self.all_sent:
            raise Violation(f"{reader} reads {sent} at {spot}, which nobody sent")
        if sent in self._read[reader]:
            before = self._read[reader][sent]
            raise Violation(f"{reader} reads {sent} twice: at {before} and {spot}")
        self._read[reader][sent] = spot
        last = self._last_of_key[reader, collection, change.key]
        if sent.number < last:
            raise Violation(f"{reader} reads {sent} after number {last} of its key")
        self._last_of_key[reader, collection, change.key] = sent.number
        self._is_at(spot, sent)

    def _is_at(self, spot: Spot, sent: Sent) -> None:
        if self._at.setdefault(spot, sent) != sent:
            raise Violation(f"{spot} is both {self._at[spot]} and {sent}")

    def has_read(self, reader: str) -> int:
        return len(self._read[reader])

    def count(self, collection: str) -> int:
        return sum(x.collection == collection for x in self.all_sent)

    # at the end

    def all_is_read(self) -> None:
        """Each reader of a collection has read every record of it, and no other."""
        for reader, read in self._read.items():
            collection = reader.partition(" of ")[2]
            missing = {x for x in self.all_sent if x.collection == collection} - set(read)
            if missing:
                one = min(missing)
                raise Violation(
                    f"{reader} has not read {len(missing)} records, as {one}, which was "
                    f"acknowledged in {self.stored.get(one)}"
                )


def check_store(objects: Objects, identity: str) -> Catalog:
    """Check catalogs and rows as they lie in the store; return the newest catalog."""
    catalogs = []
    for key in [x for x in objects.keys if x.startswith(CATALOGS)]:
        number = number_of(key)
        assert number is not None
        catalogs.append(decode_catalog(objects.data[key], number, identity))
    if [x.number for x in catalogs] != list(range(1, len(catalogs) + 1)):
        raise Violation("the numbers of catalogs have a gap")
    for before, after in pairwise(catalogs):
        _check_follows(before, after)
    newest = catalogs[-1]
    for era in newest.eras:
        for row in era.rows:
            _check_row(objects, newest, era.number, row.broker, row.sealed_at)
    return newest


def _check_follows(before: Catalog, after: Catalog) -> None:
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
    for collection in before.collections:
        _check_collection(what, collection, after.collection(collection.name))
    _check_division(what, after)


def _only_kept(before: Catalog, after: Catalog) -> bool:
    def bare(catalog: Catalog, count: int) -> list[object]:
        return [
            (x.number, x.state, [(y.broker, y.incarnation, y.sealed_at) for y in x.rows])
            for x in catalog.eras[:count]
        ]

    count = len(before.eras) - 1
    return bare(before, count) == bare(after, count)


def _check_collection(what: str, before: Collection, after: Collection) -> None:
    now = {x.id: x for x in after.partitions}
    for old in before.partitions:
        new = now.get(old.id)
        if new is None:
            raise Violation(f"{what}: {old.id} is gone")
        if old.last is not None and new.last != old.last:
            raise Violation(f"{what}: the end of {old.id} went from {old.last} to {new.last}")
        if new.broker != old.broker:
            raise Violation(f"{what}: {old.id} changed its writer")
        if new.start < old.start:
            raise Violation(f"{what}: {old.id} has records again that were deleted")


def _check_division(what: str, catalog: Catalog) -> None:
    era = catalog.era
    if era is None:
        return
    brokers = {x.broker for x in era.rows}
    for collection in catalog.collections:
        opened = collection.open_partitions()
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


def _check_row(
    objects: Objects, catalog: Catalog, era: int, broker: str, sealed_at: int | None
) -> None:
    """Check that a row has no gap before its seal, and its partitions none either."""
    prefix = row_prefix(era, broker)
    owned = {
        (c.name, p.id): p
        for c in catalog.collections
        for p in c.partitions
        if p.era == era and p.broker == broker
    }
    row = catalog.era_numbered(era).row(broker)
    assert row is not None
    numbers = {number_of(x.key): x.key for x in objects.listed(prefix, "", float("inf"))}
    lasts: dict[tuple[str, RangeId], int] = {}
    number = row.kept_from
    while number in numbers:
        data = objects.data[numbers[number]]
        header = decode_header(data, catalog.identity, Place(era, broker, number))
        if header.seal:
            break
        if header.incarnation != row.incarnation:
            raise Violation(f"{numbers[number]} is of another incarnation than the era's")
        _check_sections(data, header, owned, lasts, whole=row.kept_from == 1)
        number += 1
    if sealed_at is None:
        return
    if number != sealed_at:
        raise Violation(f"the row {prefix} ends at {number}, its catalog says {sealed_at}")
    for key, partition in owned.items():
        if partition.last != lasts.get(key, partition.start):
            raise Violation(f"{key} was closed at {partition.last}, and has {lasts.get(key)}")


def _check_sections(
    data: bytes,
    header: FlushHeader,
    owned: Mapping[tuple[str, RangeId], Partition],
    lasts: dict[tuple[str, RangeId], int],
    *,
    whole: bool,
) -> None:
    for section in header.sections:
        key = (section.collection, section.partition)
        if key not in owned:
            raise Violation(f"{header.place} extends {key}, which is not its broker's")
        expected = lasts.get(key, 0 if whole else section.first - 1) + 1
        if section.first != expected:
            raise Violation(f"{key} goes on at {section.first}, not at {expected}")
        columns = section_columns(data, section)
        changes_of(section.partition, section.first, section.count, columns)
        lasts[key] = section.last
