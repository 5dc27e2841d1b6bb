"""What must hold of records, whatever goes wrong: looked at as it happens, and at the end."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from changefeed.feeds.feed import Change, RangeId
from changefeed.log.records import Record
from changefeed.testing.history import KeyOrder
from tests.simulation.progress import Violation


class Sent(NamedTuple):
    """A record of a producer; ``number`` counts up by key."""

    collection: str
    key: str
    number: int

    def record(self) -> Record:
        return Record(key=self.key, body=str(self.number).encode())


Spot = tuple[str, RangeId, int]
"""A collection, a partition and a sequence."""


class Checker:
    """What becomes of each record. ``reader`` names who has read; each must read all.

    One that was acknowledged is read once by each reader, unless retention took it and the
    reader learned that. One that was refused is never read; of unknown fate, once at most.
    """

    def __init__(self) -> None:
        self.all_sent: set[Sent] = set()
        self.stored: set[Sent] = set()
        self.fates_unknown: set[Sent] = set()
        self._refused: set[Sent] = set()
        self._at: dict[Spot, Sent] = {}
        self._read: dict[str, dict[Sent, Spot]] = defaultdict(dict)
        self._lost: dict[str, dict[tuple[str, RangeId], list[range]]] = {}
        self._trails = KeyOrder[RangeId]()

    # as it happens

    def sent(self, sent: Sent) -> None:
        self.all_sent.add(sent)

    def placed(self, collection: str, changes: Iterable[Change]) -> None:
        """A broker answered that it stored these, and where."""
        for change in changes:
            self._is_at(*_seen(collection, change))

    def acknowledged(self, sent: Sent) -> None:
        if sent in self.stored:
            raise Violation(f"{sent} was acknowledged twice")
        self.stored.add(sent)

    def refused(self, sent: Sent) -> None:
        """It was answered that a record is not stored, and it is never sent again."""
        self._refused.add(sent)
        for reader, read in self._read.items():
            if sent in read:
                raise Violation(f"{reader} has read {sent}, which is refused now")

    def unknown(self, sent: Sent) -> None:
        self.fates_unknown.add(sent)

    def read(self, reader: str, collection: str, change: Change) -> None:
        spot, sent = _seen(collection, change)
        self.may_be_there(reader, sent, spot)
        if sent in self._read[reader]:
            before = self._read[reader][sent]
            raise Violation(f"{reader} reads {sent} twice: at {before} and {spot}")
        self._read[reader][sent] = spot
        key = reader, collection, change.key
        for problem in self._trails.next(key, change.range_id, sent.number):
            raise Violation(str(problem))
        self._is_at(spot, sent)

    def may_be_there(self, where: str, sent: Sent, spot: Spot) -> None:
        if sent not in self.all_sent:
            raise Violation(f"{where} has {sent} at {spot}, which no producer sent")
        if sent in self._refused:
            raise Violation(f"{where} has {sent} at {spot}, which was refused")

    def lost(
        self, reader: str, collection: str, partition: RangeId, first: int, last: int
    ) -> None:
        """Note that a reader learned what retention took before it came."""
        of = self._lost.setdefault(reader, {})
        of.setdefault((collection, partition), []).append(range(first, last + 1))

    def _is_at(self, spot: Spot, sent: Sent) -> None:
        if self._at.setdefault(spot, sent) != sent:
            raise Violation(f"{spot} is both {self._at[spot]} and {sent}")

    # at the end

    def missing(self, reader: str, collection: str, places: Mapping[Sent, Spot]) -> list[Sent]:
        """Return what was acknowledged, and a reader has neither read nor learned as lost."""
        read = self._read[reader]
        return [
            x
            for x in self.stored
            if x.collection == collection
            and x not in read
            and not self._is_lost(reader, places[x])
        ]

    def _is_lost(self, reader: str, spot: Spot) -> bool:
        collection, partition, sequence = spot
        found = self._lost.get(reader, {}).get((collection, partition), [])
        return any(sequence in x for x in found)

    def check_places(self, places: Mapping[Sent, Spot]) -> None:
        """Compare with what lies in the store, and what was deleted from it."""
        for sent, spot in places.items():
            self.may_be_there("the store", sent, spot)
            self._is_at(spot, sent)
        gone = self.stored - places.keys()
        if gone:
            raise Violation(
                f"{len(gone)} records were acknowledged and are nowhere, as {min(gone)}"
            )
        open_fates = self.all_sent - self.stored - self._refused - self.fates_unknown
        if open_fates:
            raise Violation(f"it was never said what became of {min(open_fates)}")


def _seen(collection: str, change: Change) -> tuple[Spot, Sent]:
    spot = collection, change.range_id, change.sequence
    return spot, Sent(collection, change.key, int(change.body))
