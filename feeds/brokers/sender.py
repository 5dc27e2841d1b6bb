"""Sending what lies in a producer's queues: which broker gets what, again and again.

A connection is a broker with the queues that have something for it, and has one request at a
time. A queue whose batch was not taken is unresolved; one task looks at the catalog until each
of them can be sent again. Of a closed partition any broker says how much of the last batch it
has, and the rest moves on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from changefeed.feeds.brokers.client import BrokerClient
from changefeed.feeds.brokers.partition_queues import (
    BATCH_BYTES,
    Delivery,
    PartitionQueue,
    PartitionQueues,
    Placed,
)
from changefeed.feeds.brokers.protocol import Answer, Appended
from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.runtime.logs import get_logger

_log = get_logger()

REQUEST_BYTES: Final = 4 * 1024 * 1024
_LOOK = 1.0
"""A request that takes longer is a reason to look whether its broker is still in charge."""
_ANSWER = 3.0
"""What a broker may take that has nothing to write."""
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 0.5
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """``delivery_timeout`` is how long a record may take until it is given up, in seconds.
    ``memory`` is how many bytes of records may be on their way. A broker that has not answered
    for ``request_timeout`` seconds is asked again.
    """

    memory: int = 64 * 1024 * 1024
    delivery_timeout: float = 120.0
    request_timeout: float = 30.0


class _BrokerConnection:
    """One broker: the queues that have something for it, and whether it has a request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ready: dict[PartitionQueue, None] = {}
        self.busy = False
        self.next: asyncio.Handle | None = None

    def take(self) -> Sequence[PartitionQueue]:
        """Return the queues of the next request, those that waited longest first."""
        taken: list[PartitionQueue] = []
        size = 0
        for queue in [*self.ready]:
            size += queue.next_bytes
            if taken and size > REQUEST_BYTES + BATCH_BYTES:
                break
            del self.ready[queue]
            taken.append(queue)
        return taken


class Sender:
    """Sends until ``stop``. ``freed`` is called with the bytes that are off its hands."""

    def __init__(
        self,
        client: BrokerClient,
        queues: PartitionQueues,
        options: ProducerOptions,
        *,
        freed: Callable[[int], None],
    ) -> None:
        self._client = client
        self._queues = queues
        self._options = options
        self._freed = freed
        self._id = uuid4().hex
        self._connections: dict[str, _BrokerConnection] = {}
        self._unresolved: dict[PartitionQueue, None] = {}
        self._resolving: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    def put(self, records: Sequence[Placed], delivery: Delivery) -> None:
        """Take records. Raise ``FeedUnavailable`` where no partition is there for one."""
        now = asyncio.get_running_loop().time()
        self._make_ready(self._queues.put(records, delivery, now))

    async def stop(self) -> None:
        for connection in self._connections.values():
            if connection.next is not None:
                connection.next.cancel()
        tasks = [*self._requests, *([self._resolving] if self._resolving else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Requests.

    def _make_ready(self, queues: Iterable[PartitionQueue]) -> None:
        """Let queues be sent that have something, unless that has to be settled first."""
        touched: dict[_BrokerConnection, None] = {}
        for queue in queues:
            if queue.in_flight or queue in self._unresolved or not queue.has_work:
                continue
            url = self._queues.routes.to_write(queue.partition)
            if not url:
                self._leave_unresolved([queue])
                continue
            connection = self._connections.get(url)
            if connection is None:
                connection = self._connections[url] = _BrokerConnection(url)
            connection.ready[queue] = None
            touched[connection] = None
        for connection in touched:
            self._schedule_send(connection)

    def _schedule_send(self, connection: _BrokerConnection) -> None:
        """Send in the next turn of the loop, with what else is handed over in this one.

        What comes while a request is under way goes with the next one: no clock is needed.
        """
        if connection.next is None and connection.ready and not connection.busy:
            connection.next = asyncio.get_running_loop().call_soon(self._send, connection)

    def _send(self, connection: _BrokerConnection) -> None:
        connection.next = None
        if connection.busy or not connection.ready:
            return
        queues = connection.take()
        assert queues, f"a request without a batch to {connection.url}"
        assert not any(x.in_flight for x in queues), "a queue has one batch on its way"
        for queue in queues:
            queue.in_flight, queue.sent_to = True, connection.url
        connection.busy = True
        task = asyncio.create_task(self._deliver(connection, queues))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _deliver(
        self, connection: _BrokerConnection, queues: Sequence[PartitionQueue]
    ) -> None:
        """Send one batch of each queue, and see what became of it."""
        assert connection.busy, f"{connection.url} has one request at a time"
        unresolved: Sequence[PartitionQueue] = ()
        try:
            answers = await self._ask(connection.url, queues)
            unresolved = self._take_answers(queues, answers)
        except FeedUnavailable as error:
            _log.debug("producer.waits", broker=connection.url, reason=str(error))
            unresolved = queues
        except Exception as error:
            for queue in queues:
                if queue.sent is not None:
                    self._freed(queue.fail(error))
            if not isinstance(error, FeedError):
                raise  # a bug of ours
        finally:
            for queue in queues:
                queue.in_flight = False
            connection.busy = False
        self._leave_unresolved(unresolved)
        self._make_ready(queues)
        self._schedule_send(connection)

    async def _ask(self, url: str, queues: Sequence[PartitionQueue]) -> Sequence[Answer]:
        """Append at a broker, as long as it is in charge of the partitions."""
        asking = asyncio.create_task(
            self._client.append(
                url,
                self._queues.routes.identity,
                [x.batch(self._id) for x in queues],
                catalog=self._queues.routes.topology.catalog,
                seconds=self._options.request_timeout,
            )
        )
        closing: asyncio.Task[None] | None = None
        try:
            if not (await asyncio.wait({asking}, timeout=_LOOK))[0]:
                closing = asyncio.create_task(self._until_closed(queues))
                await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if closing is not None and not asking.done():
                closing.result()
                raise FeedUnavailable("it is not in charge any more")
            return asking.result()
        finally:
            asking.cancel()
            if closing is not None:
                closing.cancel()

    async def _until_closed(self, queues: Sequence[PartitionQueue]) -> None:
        """Look at the catalog until the partitions of all these are closed."""
        while not all(x.is_closed for x in queues):
            with suppress(FeedUnavailable):
                await self._look_within(_LOOK)

    def _take_answers(
        self, queues: Sequence[PartitionQueue], answers: Sequence[Answer]
    ) -> Sequence[PartitionQueue]:
        """Settle what was stored; return those that are unresolved."""
        unresolved = []
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, Appended):
                self._freed(queue.stored())
                continue
            if answer.reason == "moved":
                queue.closed_in = max(queue.closed_in, answer.catalog, 1)
            if answer.reason == "moved" and answer.reached is not None:
                self._freed(queue.stored_up_to(answer.reached))
            elif answer.reason == "moved":
                self._freed(queue.fail(FeedUnavailable(_FATE_UNKNOWN)))
            elif answer.reason == "gap":
                queue.begin_again()
            elif answer.reason == "taken":
                self._freed(queue.fail(FeedRefused(_TAKEN)))
            unresolved.append(queue)
        return unresolved

    # What has to be settled before more is sent.

    def _leave_unresolved(self, queues: Iterable[PartitionQueue]) -> None:
        self._unresolved.update(dict.fromkeys(queues))
        if self._unresolved and self._resolving is None:
            self._resolving = asyncio.create_task(self._resolve_all())

    async def _resolve_all(self) -> None:
        """Look at the catalog until every queue can be sent again, or was given up."""
        try:
            while self._unresolved:
                pause = _pause(min(x.attempts for x in self._unresolved))
                for queue in self._unresolved:
                    queue.attempts += 1
                self._give_up_what_is_too_old()
                try:
                    await self._look_within(pause)
                    await self._resolve()
                except FeedUnavailable as error:
                    _log.debug("producer.waits", reason=str(error))
                except FeedError as error:
                    self._give_up(error, since=_FOREVER)
        except Exception as error:
            self._give_up(error, since=_FOREVER)  # a bug of ours: no caller waits for ever
            raise
        finally:
            self._resolving = None

    async def _resolve(self) -> None:
        """Let those queues go on whose next step is known."""
        await self._ask_closed([x for x in self._unresolved if x.is_closed and x.sent])
        for queue in [*self._unresolved]:
            assert not queue.in_flight, f"a batch of {queue.id} is on its way"
            if not queue.is_closed:
                if self._queues.routes.to_write(queue.partition):
                    del self._unresolved[queue]
                    self._make_ready([queue])
                continue
            if queue.sent is None and self._queues.routes.topology.catalog >= queue.closed_in:
                moved = self._queues.move_on(queue)
                del self._unresolved[queue]
                self._make_ready(moved)

    async def _ask_closed(self, queues: Sequence[PartitionQueue]) -> None:
        """Learn how much of their last batches closed partitions have: any broker knows."""
        asked = Counter(x.sent_to for x in queues)
        for url in sorted(self._queues.routes.urls, key=lambda x: asked[x]):
            unknown = [x for x in queues if x.sent is not None]
            for some in _requests(unknown):
                try:
                    answers = await self._ask_once(url, some)
                except FeedUnavailable as error:
                    _log.debug("producer.waits", broker=url, reason=str(error))
                    break
                self._take_answers(some, answers)

    async def _ask_once(self, url: str, queues: Sequence[PartitionQueue]) -> Sequence[Answer]:
        return await self._client.append(
            url,
            self._queues.routes.identity,
            [x.batch(self._id) for x in queues],
            catalog=self._queues.routes.topology.catalog,
            seconds=_ANSWER,
        )

    def _give_up_what_is_too_old(self) -> None:
        limit = self._options.delivery_timeout
        error = FeedUnavailable(
            f"the brokers did not take it within {limit:g} s; it may be stored all the same"
        )
        self._give_up(error, since=asyncio.get_running_loop().time() - limit)

    def _give_up(self, error: Exception, *, since: float) -> None:
        for queue in [*self._unresolved]:
            self._freed(queue.fail_older(since, error))
            if not queue.has_work and not queue.is_closed:
                del self._unresolved[queue]

    async def _look_within(self, seconds: float) -> None:
        """Look, and return as soon as there is a newer catalog, or after so many seconds."""
        loop, known = asyncio.get_running_loop(), self._queues.routes.topology.catalog
        until = loop.time() + seconds
        try:
            await self._look(wait=seconds)
        except FeedUnavailable:
            await asyncio.sleep(until - loop.time())
            raise
        if self._queues.routes.topology.catalog == known:
            await asyncio.sleep(until - loop.time())

    async def _look(self, *, wait: float) -> None:
        """Learn the newest topology; what lies ready is sorted by it."""
        known = self._queues.routes.topology
        wanted = max((x.closed_in for x in self._unresolved), default=0)
        found = await self._client.routes(at_least=wanted, newer_than=known.catalog, wait=wait)
        if found.identity != known.identity:
            raise FeedRefused(
                f"the collection {known.collection!r} was deleted and created again: open "
                f"another producer"
            )
        if found.topology.catalog <= known.catalog:
            return
        self._queues.adopt(found)
        for connection in self._connections.values():
            connection.ready.clear()
        idle = [x for x in self._queues if not x.in_flight]
        self._leave_unresolved(x for x in idle if x.is_closed)
        self._make_ready(idle)


def _requests(queues: Sequence[PartitionQueue]) -> Iterator[Sequence[PartitionQueue]]:
    """Share queues out to requests of a size that brokers take."""
    taken: list[PartitionQueue] = []
    size = 0
    for queue in queues:
        if taken and size + queue.next_bytes > REQUEST_BYTES:
            yield taken
            taken, size = [], 0
        taken.append(queue)
        size += queue.next_bytes
    if taken:
        yield taken


def _pause(attempts: int) -> float:
    """Return how long to wait with another attempt, in seconds; the first is at once."""
    if not attempts:
        return 0.0
    return min(_FIRST_PAUSE * float(2 ** min(attempts - 1, 10)), _MAX_PAUSE)


_TAKEN = (
    "another producer uses the same id: these records were not stored. Look for a copy of this "
    "process that was made while it ran, and end one of the two"
)
_FATE_UNKNOWN = (
    "its partition was closed so long ago that brokers do not know any more whether it was "
    "stored: look for it before sending it again"
)
