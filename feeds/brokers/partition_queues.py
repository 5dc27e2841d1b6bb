"""What a producer has to send, by the partition that takes it. Decisions only, no I/O.

A queue holds the records of one partition in their order, and has one batch on its way at a
time: that makes order by key plain, and a batch is sent again exactly as it was, under the
same number, until its fate is known. Only then the next one follows.

A partition that is closed keeps its queue, and its keys, until the fate of its last batch is
known: any broker knows what a closed partition has. Then what it has not stored goes on to
the partitions that have its keys now, before what is newer.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from changefeed.feeds.brokers.protocol import Batch
from changefeed.feeds.brokers.ranges import Partition
from changefeed.feeds.brokers.routes import Place, Routes
from changefeed.feeds.eventlog.block_format import lay_out
from changefeed.feeds.eventlog.records import Encoded
from changefeed.feeds.feed import RangeId

BATCH_BYTES = 1024 * 1024
"""A batch takes no more records once it has so many bytes."""
Placed = tuple[Place, Encoded]
"""A record, and where the hash of its key puts it."""


class Delivery:
    """What one caller waits for: its records, in as many batches as it takes."""

    __slots__ = ("done", "left")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.left = count
        self.done = done

    def stored(self, count: int) -> None:
        self.left -= count
        assert self.left >= 0, f"{-self.left} records were stored twice"
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def fail(self, count: int, error: BaseException) -> None:
        self.left -= count
        assert self.left >= 0, f"{-self.left} records were stored, and given up"
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class Chunk:
    """Some records of one delivery for one partition. ``since``: when they were handed over."""

    records: Sequence[Placed]
    size: int
    delivery: Delivery
    since: float

    def without(self, count: int) -> "Chunk":
        """Return what follows its first so many records."""
        assert 0 <= count <= len(self.records), f"{count} of {len(self.records)} records"
        if not count:
            return self
        rest = self.records[count:]
        return Chunk(rest, size_of(rest), self.delivery, self.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """What is sent under one number, and stays as it is until its fate is known."""

    batch: Batch
    chunks: tuple[Chunk, ...]
    size: int


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The records of one partition. ``sent`` is the batch whose fate is not known.

    ``waiting_bytes`` are those of what was not sent yet. ``generation`` counts the times
    that it has numbered its batches from 1: again after a batch was given up, whose numbers
    may or may not be taken. ``attempts`` counts those without success, one after the other.
    ``closed_in`` is the catalog by which its partition is known to be closed, 0 before: in an
    older one it is open still, and its numbers would be given out twice.
    """

    partition: Partition
    next: int = 1
    generation: int = 0
    waiting: deque[Chunk] = field(default_factory=deque)
    waiting_bytes: int = 0
    sent: SentBatch | None = None
    sent_to: str = ""
    in_flight: bool = False
    attempts: int = 0
    closed_in: int = 0

    @property
    def id(self) -> RangeId:
        return self.partition.id

    @property
    def is_closed(self) -> bool:
        return self.closed_in > 0

    @property
    def has_work(self) -> bool:
        return self.sent is not None or bool(self.waiting)

    @property
    def next_bytes(self) -> int:
        """Return the bytes of the batch to send next, or a little more."""
        if self.sent is not None:
            return self.sent.size
        if not self.waiting:
            return 0
        assert self.waiting_bytes > 0, f"{self.id}: records wait, and have bytes"
        return max(self.waiting[0].size, min(self.waiting_bytes, BATCH_BYTES))

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.waiting.append(chunk)
            self.waiting_bytes += chunk.size

    def batch(self, producer: str) -> Batch:
        """Return what to send now: what was sent before, or else the next batch."""
        if self.sent is None:
            chunks: list[Chunk] = []
            size = 0
            while self.waiting and (not chunks or size + self.waiting[0].size <= BATCH_BYTES):
                chunks.append(self._next())
                size += chunks[-1].size
            records = [x for chunk in chunks for _, x in chunk.records]
            assert records, f"{self.id}: a batch without records"
            batch = Batch(
                partition=self.id,
                producer=producer,
                generation=self.generation,
                sequence=self.next,
                count=len(records),
                columns=lay_out(records),
            )
            self.sent = SentBatch(batch=batch, chunks=tuple(chunks), size=size)
        return self.sent.batch

    def stored(self) -> int:
        """The batch was stored: the next number is the one behind it. Return its bytes."""
        sent = self._sent()
        self.attempts = 0
        self.next += sent.batch.count
        for chunk in sent.chunks:
            chunk.delivery.stored(len(chunk.records))
        return sent.size

    def stored_up_to(self, reached: int) -> int:
        """A closed partition has stored what it has, and will never store more.

        What it has not is the first that ``leave`` returns. Return the bytes of the rest.
        """
        sent = self._sent()
        stored = min(max(reached - sent.batch.sequence + 1, 0), sent.batch.count)
        freed = 0
        left: list[Chunk] = []
        for chunk in sent.chunks:
            done, stored = min(stored, len(chunk.records)), max(stored - len(chunk.records), 0)
            if done:
                chunk.delivery.stored(done)
            rest = chunk.without(done)
            freed += chunk.size - rest.size
            if rest.records:
                left.append(rest)
        rest_bytes = sum(x.size for x in left)
        assert freed + rest_bytes == sent.size, (
            f"{self.id}: {freed} bytes are stored and {rest_bytes} left, of {sent.size}"
        )
        self.waiting.extendleft(reversed(left))
        self.waiting_bytes += rest_bytes
        return freed

    def begin_again(self) -> None:
        """Number from 1, under another name: what was sent is not stored."""
        sent = self._sent()
        self.waiting.extendleft(reversed(sent.chunks))
        self.waiting_bytes += sent.size
        self.generation, self.next = self.generation + 1, 1

    def fail(self, error: BaseException) -> int:
        """Give up what was sent, whose fate stays unknown; return its bytes."""
        sent = self._sent()
        self.generation, self.next = self.generation + 1, 1
        for chunk in sent.chunks:
            chunk.delivery.fail(len(chunk.records), error)
        return sent.size

    def fail_older(self, since: float, error: BaseException) -> int:
        """Give up what was handed over before a time; return its bytes."""
        freed = 0
        if self.sent is not None and self.sent.chunks[0].since <= since:
            freed += self.fail(error)
        while self.sent is None and self.waiting and self.waiting[0].since <= since:
            chunk = self._next()
            chunk.delivery.fail(len(chunk.records), error)
            freed += chunk.size
        return freed

    def leave(self) -> Iterator[Chunk]:
        """Take everything out, in order."""
        assert self.sent is None, "its fate is known"
        while self.waiting:
            yield self._next()
        assert self.waiting_bytes == 0, f"{self.id}: {self.waiting_bytes} bytes are left behind"

    def _next(self) -> Chunk:
        chunk = self.waiting.popleft()
        self.waiting_bytes -= chunk.size
        assert self.waiting_bytes >= 0, f"{self.id}: {self.waiting_bytes} bytes wait"
        return chunk

    def _sent(self) -> SentBatch:
        sent, self.sent = self.sent, None
        assert sent is not None, "something was sent"
        numbers = (sent.batch.generation, sent.batch.sequence)
        assert numbers == (self.generation, self.next), (
            f"{self.id}: {numbers} was sent, and {self.generation, self.next} is the next"
        )
        return sent


class PartitionQueues:
    """All queues of a producer, and which one takes a key."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._by_id: dict[RangeId, PartitionQueue] = {}
        self._by_place: dict[Place, PartitionQueue] = {}

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter([*self._by_id.values()])

    def deliveries(self) -> Iterator[Delivery]:
        """Yield what callers wait for."""
        for queue in self:
            sent = () if queue.sent is None else queue.sent.chunks
            for chunk in (*sent, *queue.waiting):
                if not chunk.delivery.done.done():
                    yield chunk.delivery

    def put(
        self, records: Sequence[Placed], delivery: Delivery, now: float
    ) -> Sequence[PartitionQueue]:
        """Add records behind those that are there; return the queues they went to.

        Raise ``FeedUnavailable``, with nothing added, where no partition is open for one.
        """
        grouped: dict[PartitionQueue, list[Placed]] = {}
        for placed in records:
            queue = self._by_place.get(placed[0]) or self._queue_of(placed[0])
            if queue in grouped:
                grouped[queue].append(placed)
            else:
                grouped[queue] = [placed]
        for queue, some in grouped.items():
            queue.add(_chunks(some, delivery, now))
        return list(grouped)

    def adopt(self, routes: Routes) -> None:
        """Learn a newer topology: who owns what, and what was closed."""
        assert routes.topology.catalog >= self.routes.topology.catalog, (
            f"catalog {routes.topology.catalog} is older than {self.routes.topology.catalog}"
        )
        self.routes = routes
        for queue in self:
            if not routes.is_open(queue.partition):
                queue.closed_in = queue.closed_in or routes.topology.catalog

    def move_on(self, queue: PartitionQueue) -> Sequence[PartitionQueue]:
        """Dissolve a queue whose partition is closed, and that has nothing on its way.

        Return the queues that what it had not sent went to. Raise ``FeedUnavailable``, with
        nothing changed, where no partition is open for one of its keys.
        """
        assert queue.is_closed, f"{queue.id} takes records still"
        assert not queue.in_flight, f"a batch of {queue.id} is on its way"
        places = [x for x, y in self._by_place.items() if y is queue]
        for place in places:
            self.routes.open_at(place)
        del self._by_id[queue.id]
        for place in places:
            del self._by_place[place]
        moved: dict[PartitionQueue, None] = {}
        for chunk in queue.leave():
            moved.update(dict.fromkeys(self.put(chunk.records, chunk.delivery, chunk.since)))
        return list(moved)

    def _queue_of(self, place: Place) -> PartitionQueue:
        partition = self.routes.open_at(place)
        queue = self._by_id.get(partition.id)
        if queue is None:
            queue = self._by_id[partition.id] = PartitionQueue(partition)
        self._by_place[place] = queue
        return queue


def size_of(records: Iterable[Placed]) -> int:
    """Return the bytes of records."""
    return sum([x[-1] for _, x in records])


def _chunks(records: Sequence[Placed], delivery: Delivery, now: float) -> Sequence[Chunk]:
    """Cut what is larger than a batch should be."""
    whole = size_of(records)
    if whole <= BATCH_BYTES:
        return (Chunk(records, whole, delivery, now),)
    found = []
    begin = size = 0
    for n, (_, record) in enumerate(records, 1):
        size += record[-1]
        if size >= BATCH_BYTES or n == len(records):
            found.append(Chunk(records[begin:n], size, delivery, now))
            begin, size = n, 0
    assert begin == len(records), f"{len(records) - begin} records are in no chunk"
    return found
