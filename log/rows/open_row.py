"""A row that takes records: the number, the time and the ends of what comes next. Pure.

``make`` gives an object, and ``add`` lets the next one follow on it. An object that was made
and not added has left nothing behind, but for the time: a writer that learns later what
became of an object (``stores.store.holds``) adds it then, or makes the next one in its place.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from changefeed.log.catalog.names import flush_key
from changefeed.log.format.block_format import Layout
from changefeed.log.format.flush import (
    Ends,
    FlushHeader,
    PartitionEnd,
    ProducerKey,
    ProducerState,
    StoredRequest,
    encode_flush,
    end_with,
    has_table,
    records_behind,
    state_after,
)
from changefeed.log.format.pack import Key
from changefeed.runtime.clock import wall_clock_us


class WriterPlace(NamedTuple):
    """Whose row of which era this is, and when the era began, by the master's clock."""

    cluster: str
    era: int
    broker: str
    incarnation: str
    began_us: int = 0


class RowObject(NamedTuple):
    """What is to be written at a number of a row, under a key, and what it changes.

    ``firsts`` are the sequences at which the records of partitions begin.
    """

    key: str
    number: int
    data: bytes
    firsts: Mapping[Key, int]
    ends: Ends
    producers: Mapping[ProducerKey, ProducerState]


class OpenRow:
    """``next`` is the number of the next object. ``ends`` and ``producers`` are how far those
    of the row have come with the objects added: what the tables say. Without ``knows_ends``
    the row can only be sealed, and the seal has no table.
    """

    def __init__(
        self,
        place: WriterPlace,
        wall_us: Callable[[], int] = wall_clock_us,
        *,
        last: int = 0,
        ends: Ends | None = None,
        written_us: int = 0,
        knows_ends: bool = True,
    ) -> None:
        assert last >= 0, f"{place} ends at object {last}"
        self.place = place
        self.next = last + 1
        self.knows_ends = knows_ends
        self._ends: dict[Key, PartitionEnd] = dict(ends or {})
        self._producers: dict[ProducerKey, ProducerState] = {}
        self._wall_us = wall_us
        self._written_us = max(
            [place.began_us, written_us, *(x.written_us for x in self._ends.values())]
        )

    @property
    def ends(self) -> Ends:
        return self._ends

    @property
    def producers(self) -> Mapping[ProducerKey, ProducerState]:
        return self._producers

    def open(self, keys: Iterable[Key]) -> None:
        """Let partitions be in the tables from now on, also without records."""
        for key in keys:
            self._ends.setdefault(key, no_end(key))

    def forget(self, producer: ProducerKey) -> None:
        """Leave a producer out of the tables from now on."""
        self._producers.pop(producer, None)

    def now_us(self) -> int:
        """Return the wall-clock time; in a row it never goes back, nor before its era.

        Retention goes by it, and a clock that is behind must not make records old.
        """
        self._written_us = max(self._written_us, self._wall_us())
        return self._written_us

    def make(
        self,
        columns: Mapping[Key, Layout],
        requests: Iterable[StoredRequest] = (),
        *,
        seal: bool = False,
    ) -> RowObject:
        """Return the next object, with records of partitions and whose requests they were."""
        assert not (seal and columns), f"a seal of {self.place} with records"
        assert seal or self.knows_ends, f"{self.place} has no known ends for more"
        now_us, requests = self.now_us(), tuple(requests)
        records = [
            records_behind(self._ends.get(key) or no_end(key), found)
            for key, found in sorted(columns.items())
        ]
        producers: dict[ProducerKey, ProducerState] = {}
        for x in requests:
            producer = (x.collection, x.producer)
            before = producers.get(producer) or self._producers.get(producer)
            producers[producer] = state_after(before, x, now_us)
        has_ends = self.knows_ends and (seal or has_table(self.next))
        header = FlushHeader(
            cluster=self.place.cluster,
            era=self.place.era,
            broker=self.place.broker,
            incarnation=self.place.incarnation,
            number=self.next,
            written_us=now_us,
            seal=seal,
            table=tuple(self._ends.values()) if has_ends else None,
            producers=tuple(self._producers.values()) if has_ends else (),
            requests=requests,
        )
        return RowObject(
            flush_key(self.place.era, self.place.broker, self.next),
            self.next,
            encode_flush(header, records),
            {x.key: x.first for x in records},
            {x.key: end_with(x, now_us) for x in records},
            producers,
        )

    def add(self, made: RowObject) -> None:
        """Let what is made next follow on an object, which was the last that was made."""
        assert made.number == self.next, f"object {made.number} of {self.place} is not next"
        assert all(made.firsts[k] <= x.last for k, x in made.ends.items()), (
            f"object {made.number} of {self.place} has partitions without records"
        )
        for key, first in made.firsts.items():
            last = (self._ends.get(key) or no_end(key)).last
            assert first == last + 1, f"{key} goes on at {first} in {self.place}, after {last}"
        self.next += 1
        self._ends.update(made.ends)
        self._producers.update(made.producers)


def no_end(key: Key) -> PartitionEnd:
    """Return the end of a partition without records."""
    collection, partition = key
    return PartitionEnd(collection=collection, partition=partition)
