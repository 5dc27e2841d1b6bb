"""Looks at each catalog as it is written, and at each object as it is deleted."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import (
    Catalog,
    Cluster,
    Collection,
    decode_catalog,
    decode_collection,
    first_catalog,
)
from changefeed.log.catalog.names import (
    CATALOG,
    COLLECTIONS,
    SEGMENTS,
    WAL,
    compacted_prefix,
    number_of,
    row_prefix,
    run_of,
)
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.format.flush import FlushHeader, decode_header
from changefeed.log.format.pack import Place, Section
from changefeed.log.format.runs import Run, decode_run
from changefeed.log.ids import era_in
from tests.simulation.probes import BrokerProbe as Probe
from tests.simulation.probes import Probes
from tests.simulation.progress import Violation

from .store import Objects
from .store_checks import check_collection, check_follows


class _Held(NamedTuple):
    """What an object has of a partition."""

    key: str
    collection: str
    partition: RangeId
    first: int
    last: int

    def has(self, section: Section) -> bool:
        return (
            (self.collection, self.partition) == (section.collection, section.partition)
            and self.first <= section.first
            and section.last <= self.last
        )


class Guard:
    """``living`` are the names of the brokers that run.

    What it finds is kept in ``violation``: it looks from within the store.
    """

    def __init__(
        self,
        objects: Objects,
        cluster: Cluster,
        probes: Probes,
        living: Callable[[], set[str]],
    ) -> None:
        self.violation: Violation | None = None
        self.newest = first_catalog(cluster)
        self._objects = objects
        self._probes = probes
        self._living = living

    def replaced(self, key: str, now: float) -> None:
        if key == CATALOG:
            self._noting(self._take)
        else:
            self._noting(lambda: self._take_collection(key, now))

    def was_replaced(self) -> None:
        self._probes.hit(Probe.CATALOG_LOST)

    def exists(self, key: str, data: bytes) -> None:
        hit = self._probes.hit
        if key.startswith(WAL):
            ours = self._objects.whole(key) == data
            hit(Probe.WRITE_WITHOUT_ANSWER if ours else Probe.FENCED)

    def deleting(self, key: str) -> None:
        self._probes.hit(Probe.DAMAGED_AND_DELETED, where=key in self._objects.damaged)
        if key.startswith(WAL):
            self._probes.hit(Probe.ROW_DELETED)
            self._noting(lambda: self._check_deletion(key))
        elif key.startswith(SEGMENTS):
            self._probes.hit(Probe.SEGMENT_DELETED)
            self._noting(lambda: self._check_segment(key))
        elif key.startswith("compacted/"):
            self._noting(lambda: self._check_run(key))

    def _noting(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Violation as violation:
            self.violation = self.violation or violation

    def _take(self) -> None:
        before = self.newest
        stored = decode_catalog(self._objects.data[CATALOG], before.identity)
        after = replace(stored, collections=before.collections)
        if after.number != before.number + 1:
            raise Violation(f"catalog {after.number} was written after {before.number}")
        self.newest = after
        check_follows(before, after)
        self._probe(before, after)

    def _take_collection(self, key: str, now: float) -> None:
        name = key.removeprefix(COLLECTIONS)
        after, before = decode_collection(self._objects.data[key], name), self.newest.find(name)
        known = {x.name: x for x in self.newest.collections} | {name: after}
        collections = tuple(known[x] for x in sorted(known))
        self.newest = replace(self.newest, collections=collections)
        if before is None:
            era = self.newest.era
            ending = era is not None and era.state == "ending"
            self._probes.hit(Probe.CREATED_IN_BETWEEN, where=ending)
            return
        check_collection(before, after)
        is_cut = (before.kept_era, before.gone) != (after.kept_era, after.gone)
        taken_back = before.cut is not None and after.cut is None and not is_cut
        self._probes.hit(Probe.TAKEN_BACK, where=taken_back)
        self._check_cuts(before, after, now)

    def _probe(self, before: Catalog, after: Catalog) -> None:
        hit, was, now = self._probes.hit, before.era, after.era
        if was is not None and now is not None and was.number < now.number:
            gone = {x.broker for x in was.rows} - {*self._living()}
            hit(Probe.ENDED_BY_OTHERS, where=bool(gone))
            closed = after.era_numbered(was.number)
            hit(Probe.EMPTY_ROW, where=any(x.sealed_at == 1 for x in closed.rows))
        hit(Probe.RESHAPED, where=before.reshaping != after.reshaping)

    def _check_cuts(self, before: Collection, after: Collection, now: float) -> None:
        """Retention takes no more than it was asked for."""
        if (before.kept_era, before.gone) == (after.kept_era, after.gone):
            return
        self._probes.hit(Probe.CUT)
        self._probes.hit(Probe.ERA_GONE, where=before.kept_era < after.kept_era)
        seconds, most = after.retain_seconds, after.retain_bytes
        if seconds is None and most is None:
            raise Violation(f"{after.name} was cut, and is to be kept for ever")
        kept = 0
        for header, asked in self._headers(after):
            for section in header.sections:
                if section.collection != after.name:
                    continue
                if section.last > _start(after, section.partition):
                    kept += section.bytes
                elif section.last > _start(before, section.partition) and most is None:
                    assert seconds is not None
                    if asked > now - seconds:
                        raise Violation(
                            f"{section.partition} is cut, and {header.place} was written "
                            f"{now - asked:.0f} s ago"
                        )
        if seconds is None and most is not None and kept < most:
            raise Violation(f"{kept} bytes of {after.name} are kept, {most} were asked for")

    def _headers(self, of: Collection) -> list[tuple[FlushHeader, float]]:
        """Return what lay in the rows of a collection, and when each was to be written.

        What a broker that was frozen creates behind a seal is in no row.
        """
        found = []
        for era, broker in {(x.era, x.broker) for x in ranges_of(self.newest, of.name).all()}:
            prefix, row = row_prefix(era, broker), self.newest.era_numbered(era).row(broker)
            sealed_at = None if row is None else row.sealed_at
            for key in [*self._objects.keys, *self._objects.deleted]:
                number = number_of(key)
                if number is not None and sealed_at is not None and number > sealed_at:
                    continue
                data = self._objects.ever(key) if key.startswith(prefix) else None
                if data is None or number is None:
                    continue
                header = decode_header(data, self.newest.identity, Place(era, broker, number))
                found.append((header, self._objects.asked[key]))
        return found

    def _check_deletion(self, key: str) -> None:
        """What is deleted is not needed any more, as the newest catalog says."""
        _, era, broker, _ = key.split("/")
        number = number_of(key)
        assert number is not None
        row = self.newest.era_numbered(int(era)).row(broker)
        if row is None or number >= row.kept_from:
            raise Violation(f"{key} is deleted, and the catalog says that it is kept")
        place = Place(int(era), broker, number)
        header = decode_header(self._objects.whole(key), self.newest.identity, place)
        held = self._held(place.era, place.broker)
        for section in header.sections:
            gone = _start(self.newest.collection(section.collection), section.partition)
            if section.last > gone and not any(x.has(section) for x in held):
                raise Violation(
                    f"{key} is deleted, and has records of {section.partition} up to "
                    f"{section.last}, of which {gone} are gone"
                )

    def _check_segment(self, key: str) -> None:
        """A segment that is deleted is named by no run, or has nothing that is kept."""
        place = run_of(key)
        assert place is not None, f"{key} is no segment"
        for held in self._held(place.era, place.broker):
            start = _start(self.newest.collection(held.collection), held.partition)
            if held.key == key and held.last > start:
                raise Violation(f"{key} is deleted, and only up to {start} is gone")

    def _check_run(self, key: str) -> None:
        """A run that is deleted holds nothing that is kept."""
        _, era, broker, _ = key.split("/")
        for section in self._run(int(era), broker, key).sections:
            start = _start(self.newest.collection(section.collection), section.partition)
            if section.last > start:
                raise Violation(f"{key} is deleted, and only up to {start} is gone")

    def _held(self, era: int, broker: str) -> list[_Held]:
        """Return what runs of a row hold, and the segments that they name and are there."""
        found: list[_Held] = []
        for listed in self._objects.listed(compacted_prefix(era, broker), "", float("inf")):
            run = self._run(era, broker, listed.key)
            found += [
                _Held(listed.key, x.collection, x.partition, x.first, x.last)
                for x in run.sections
            ]
            found += [
                _Held(x.key, x.collection, y.range_id, y.first, y.last)
                for x in run.segments
                if x.key in self._objects.data
                for group in x.groups
                for y in group.slices
            ]
        return found

    def _run(self, era: int, broker: str, key: str) -> Run:
        number = number_of(key)
        assert number is not None
        place = Place(era, broker, number)
        return decode_run(self._objects.data[key], self.newest.identity, place)


def _start(collection: Collection, partition: RangeId) -> int:
    """Return up to where a partition is gone; beyond its end where all of it is."""
    return collection.truncation_of(partition, era_in(partition), 2**63, 0).start
