"""What a producer has to send, by the row that takes it. Decisions only, no I/O.

A row is a broker's writing in one era. Its queue holds records in their order. What waits when
a request is begun is that request; up to five are under way, numbered, and each is sent again
exactly as it was, under the same number, until its fate is known.

A row that is closed keeps its queue, and its keys, until the fate of all its requests is
known: any broker knows what a closed row has. Then what it has not stored goes on to the rows
that have its keys now, before what is newer.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from changefeed.feeds.feed import RangeId
from changefeed.log.format.block_format import check_of, lay_out
from changefeed.log.format.flush import REMEMBERED
from changefeed.log.protocol.messages import AppendRequest, Batch, Reason
from changefeed.log.protocol.routes import Place, Routes
from changefeed.log.records import Encoded

REQUEST_BYTES: Final = 4 * 1024 * 1024
"""A request takes no more records once it has so many bytes."""
WORTH_BYTES: Final = 64 * 1024
"""While a request is under way, another one waits until it has so many: each costs both sides
as much as a hundred records do."""

Placed = tuple[Place, Encoded]
"""A record, and where the hash of its key puts it."""


class Delivery:
    """What one caller waits for: its records, in as many requests as it takes.

    ``since`` is when they were handed over.
    """

    __slots__ = ("done", "left", "since")

    def __init__(self, count: int, done: asyncio.Future[None], since: float) -> None:
        self.left = count
        self.done = done
        self.since = since

    def stored(self) -> None:
        """One of its records is stored."""
        self.left -= 1
        assert self.left >= 0, f"{-self.left} records were stored twice"
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Target(NamedTuple):
    """The row and the partition that take the records of a place."""

    place: Place
    partition: RangeId
    row: "RowQueue"


class Entry(NamedTuple):
    """A record on its way."""

    target: Target
    record: Encoded
    delivery: Delivery

    @property
    def size(self) -> int:
        return self.record[-1]


@dataclass(slots=True, eq=False, kw_only=True)
class SentRequest:
    """What is sent under one number, and stays as it is until its fate is known.

    ``was_oldest``: when it was sent last, the fate of all before it was known. ``reason`` is
    why it was not appended then.
    """

    request: AppendRequest
    entries: Sequence[Entry]
    size: int
    under_way: bool = False
    was_oldest: bool = False
    reason: Reason | None = None

    @property
    def is_moved(self) -> bool:
        """Whether its row is closed, and does not have it."""
        return self.reason == "moved"

    @property
    def is_forgotten(self) -> bool:
        """Whether its row does not know the requests before it any more, which it has."""
        return self.reason == "gap" and self.was_oldest


class RowQueue:
    """The records of one row. ``sent`` are requests whose fate is not known, the oldest first.

    ``generation`` counts the times that requests were numbered from 1: again after one was
    given up, whose number may or may not be taken. ``attempts`` counts those without success,
    one after the other. ``closed_in`` is the catalog by which the row is known to be closed,
    0 before: in an older one it is open still, and its numbers would be given out twice.
    """

    def __init__(self, era: int, broker: str) -> None:
        self.era = era
        self.broker = broker
        self.sent: list[SentRequest] = []
        self.attempts = 0
        self.closed_in = 0
        self.generation = 0
        self._next = 1
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0

    def __repr__(self) -> str:
        return f"<row of {self.broker} in era {self.era}>"

    @property
    def is_closed(self) -> bool:
        return self.closed_in > 0

    @property
    def is_under_way(self) -> bool:
        return any(x.under_way for x in self.sent)

    @property
    def has_work(self) -> bool:
        return bool(self.sent or self._waiting)

    def entries(self) -> Iterator[Entry]:
        return chain(*(x.entries for x in self.sent), self._waiting)

    def add(self, entry: Entry) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += entry.record[-1]

    def begin(self, producer: str) -> SentRequest | None:
        """Make a request of what waits, if it is to be sent now."""
        if not self._waiting or len(self.sent) >= REMEMBERED:
            return None
        if self.sent and self._waiting_bytes < WORTH_BYTES:
            return None
        assert not self.is_closed, f"{self} takes nothing more"
        entries, size = self._take()
        grouped: dict[RangeId, list[Encoded]] = {}
        for target, record, _ in entries:
            known = grouped.get(target.partition)
            if known is None:
                grouped[target.partition] = [record]
            else:
                known.append(record)
        batches = tuple(
            Batch(partition=name, count=len(records), columns=lay_out(records))
            for name, records in grouped.items()
        )
        assert sum(map(len, grouped.values())) == len(entries), f"{self}: a record is left out"
        request = AppendRequest(
            producer=producer,
            generation=self.generation,
            number=self._next,
            check=check_of(column for x in batches for column in x.columns),
            batches=batches,
        )
        self._next += 1
        self.sent.append(SentRequest(request=request, entries=entries, size=size))
        return self.sent[-1]

    def _take(self) -> tuple[Sequence[Entry], int]:
        """Take what waits, up to the bytes of a request; one record at least."""
        assert self._waiting_bytes > 0, f"{self}: records wait, and have bytes"
        if self._waiting_bytes <= REQUEST_BYTES:
            whole, size = self._waiting, self._waiting_bytes
            self._waiting, self._waiting_bytes = deque(), 0
            return whole, size
        taken = [self._next_entry()]
        size = taken[0].size
        while self._waiting and size + self._waiting[0].size <= REQUEST_BYTES:
            taken.append(self._next_entry())
            size += taken[-1].size
        return taken, size

    def stored(self, sent: SentRequest) -> int:
        """A request was stored; return its bytes."""
        self.sent.remove(sent)
        self.attempts = 0
        for entry in sent.entries:
            entry.delivery.stored()
        return sent.size

    def fail(self, sent: SentRequest, error: BaseException) -> int:
        """Give up a request, whose fate stays unknown; return its bytes."""
        self.sent.remove(sent)
        for entry in sent.entries:
            entry.delivery.fail(error)
        if not self.sent:
            self._number_again()
        return sent.size

    def begin_again(self) -> None:
        """Number what was sent from 1, as another generation: none of it is stored."""
        assert not self.is_under_way, f"requests of {self} are under way"
        for sent in reversed(self.sent):
            self._waiting.extendleft(reversed(sent.entries))
            self._waiting_bytes += sent.size
        self.sent.clear()
        self._number_again()

    def fail_older(self, since: float, error: BaseException) -> int:
        """Give up what was handed over before a time; return its bytes.

        With the oldest request all go that were sent behind it: their numbers follow on its.
        """
        freed = 0
        if self.sent and self.sent[0].entries[0].delivery.since <= since:
            freed += sum(self.fail(x, error) for x in [*self.sent])
        while not self.sent and self._waiting and self._waiting[0].delivery.since <= since:
            entry = self._next_entry()
            entry.delivery.fail(error)
            freed += entry.size
        return freed

    def leave(self) -> Iterator[Entry]:
        """Take everything out, in order: what was sent is not stored."""
        assert all(x.is_moved for x in self.sent), (
            f"the fate of what was sent to {self} is known"
        )
        self.begin_again()
        while self._waiting:
            yield self._next_entry()
        assert self._waiting_bytes == 0, f"{self}: {self._waiting_bytes} bytes are left behind"

    def _next_entry(self) -> Entry:
        entry = self._waiting.popleft()
        self._waiting_bytes -= entry.size
        assert self._waiting_bytes >= 0, f"{self}: {self._waiting_bytes} bytes wait"
        return entry

    def _number_again(self) -> None:
        self.generation, self._next = self.generation + 1, 1


class RowQueues:
    """All queues of a producer, and which one takes a key."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._rows: dict[tuple[int, str], RowQueue] = {}
        self._by_place: dict[Place, Target] = {}

    def __iter__(self) -> Iterator[RowQueue]:
        return iter([*self._rows.values()])

    def deliveries(self) -> set[Delivery]:
        """Return what callers wait for."""
        found = {entry.delivery for row in self for entry in row.entries()}
        return {x for x in found if not x.done.done()}

    def put(self, records: Sequence[Placed], delivery: Delivery) -> Iterable[RowQueue]:
        """Add records behind those that are there; return the rows they went to.

        Raise ``FeedUnavailable``, with nothing added, where no partition is open for one.
        """
        known, touched = self._by_place, dict[RowQueue, None]()
        targets = [known.get(place) or self._target(place) for place, _ in records]
        assert delivery.left >= len(records), f"{len(records)} records of {delivery.left} wait"
        for target, (_, record) in zip(targets, records, strict=True):
            target.row.add(Entry(target, record, delivery))
            touched[target.row] = None
        return touched

    def adopt(self, routes: Routes) -> None:
        """Learn a newer topology: who owns what, and what was closed."""
        assert routes.topology.catalog >= self.routes.topology.catalog, (
            f"catalog {routes.topology.catalog} is older than {self.routes.topology.catalog}"
        )
        self.routes = routes
        for row in self:
            assert row.era <= routes.topology.era, f"{row} is newer than the topology"
            if row.era != routes.topology.era and not row.is_closed:
                row.closed_in, row.attempts = routes.topology.catalog, 0

    def url(self, row: RowQueue) -> str:
        """Return where its broker takes records, empty if it does not now."""
        return "" if row.is_closed else self.routes.url_of(row.broker)

    def move_on(self, row: RowQueue) -> Iterable[RowQueue]:
        """Dissolve the queue of a row that is closed, and that has nothing under way.

        Return the queues that what it had not stored went to. Raise ``FeedUnavailable``, with
        nothing changed, where no partition is open for one of its keys.
        """
        assert row.is_closed, f"{row} takes records still"
        assert not row.is_under_way, f"requests of {row} are under way"
        for place in {x.target.place for x in row.entries()}:
            self.routes.open_at(place)
        del self._rows[row.era, row.broker]
        self._by_place = {x: y for x, y in self._by_place.items() if y.row is not row}
        moved: dict[RowQueue, None] = {}
        for target, record, delivery in row.leave():
            moved.update(dict.fromkeys(self.put([(target.place, record)], delivery)))
        return moved

    def _target(self, place: Place) -> Target:
        partition = self.routes.open_at(place)
        key = (partition.era, partition.broker)
        assert partition.era == self.routes.topology.era, f"{partition.id} takes no records"
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = RowQueue(*key)
        found = self._by_place[place] = Target(place, partition.id, row)
        return found


def size_of(records: Iterable[Placed]) -> int:
    """Return the bytes of records."""
    return sum([x[-1] for _, x in records])
