"""Sending what lies in a producer's queues: which broker gets what, again and again.

A row whose requests were not all taken, or are not answered for a second, is unresolved; one
task looks at the catalog until each of them can be sent to again. Of a closed row any broker
says which of the last requests it has, and the rest moves on.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.log.client.client import BrokerClient
from changefeed.log.client.row_queues import (
    Delivery,
    Placed,
    RowQueue,
    RowQueues,
    SentRequest,
)
from changefeed.log.protocol.messages import Answer, AppendReceipt
from changefeed.runtime.logs import get_logger

_log = get_logger()

_LOOK: Final = 1.0
"""A request that takes longer is a reason to look whether its broker is still in charge."""
_ANSWER: Final = 3.0
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


class Sender:
    """Sends until ``stop``. ``freed`` is called with the bytes that are off its hands."""

    def __init__(
        self,
        client: BrokerClient,
        queues: RowQueues,
        options: ProducerOptions,
        *,
        freed: Callable[[int], None],
    ) -> None:
        self._client = client
        self._queues = queues
        self._options = options
        self._freed = freed
        self._id = uuid4().hex
        self._next: dict[RowQueue, asyncio.Handle] = {}
        self._unresolved: dict[RowQueue, None] = {}
        self._resolving: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._looked = asyncio.Event()

    def put(self, records: Sequence[Placed], delivery: Delivery) -> None:
        """Take records. Raise ``FeedUnavailable`` where no partition is there for one."""
        for row in self._queues.put(records, delivery):
            self._schedule(row)

    async def stop(self) -> None:
        for handle in self._next.values():
            handle.cancel()
        tasks = [*self._requests, *([self._resolving] if self._resolving else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Requests.

    def _schedule(self, row: RowQueue) -> None:
        """Send in the next turn of the loop, with what else is handed over in this one."""
        if row not in self._next and row not in self._unresolved:
            self._next[row] = asyncio.get_running_loop().call_soon(self._send, row)

    def _send(self, row: RowQueue) -> None:
        """Begin as many requests as may be under way."""
        self._next.pop(row, None)
        if not row.has_work or row in self._unresolved:
            return
        url = self._queues.url(row)
        if not url:
            self._leave_unresolved([row])
            return
        while (sent := row.begin(self._id)) is not None:
            self._go(row, sent, url)

    def _go(self, row: RowQueue, sent: SentRequest, url: str) -> None:
        assert not sent.under_way, (
            f"request {sent.request.number} of {row} is sent once at a time"
        )
        sent.under_way, sent.was_oldest, sent.reason = True, row.sent[0] is sent, None
        task = asyncio.create_task(self._deliver(row, sent, url))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _deliver(self, row: RowQueue, sent: SentRequest, url: str) -> None:
        """Send a request, and see what became of it."""
        try:
            answer: Answer | None = await self._ask(row, sent, url)
        except FeedUnavailable as error:
            _log.debug("producer.waits", broker=url, reason=str(error))
            answer = None
        except Exception as error:
            self._freed(row.fail(sent, error))
            answer = None
            if not isinstance(error, FeedError):
                raise  # a bug of ours
        finally:
            sent.under_way = False
        if answer is not None:
            self._take(row, sent, answer)
        if row.sent and not row.is_under_way and row.sent[0].is_forgotten:
            row.begin_again()
        if not all(x.under_way for x in row.sent):
            self._leave_unresolved([row])
        elif row in self._unresolved and not row.sent and not row.is_closed:
            del self._unresolved[row]
        self._schedule(row)

    async def _ask(self, row: RowQueue, sent: SentRequest, url: str) -> Answer:
        """Append at a broker, as long as it is in charge of the row."""
        asking = asyncio.create_task(self._append(url, sent, self._options.request_timeout))
        try:
            await asyncio.wait({asking}, timeout=_LOOK)
            while not asking.done() and not row.is_closed:
                self._leave_unresolved([row])
                looked = asyncio.create_task(self._looked.wait())
                await asyncio.wait({asking, looked}, return_when=asyncio.FIRST_COMPLETED)
                looked.cancel()
            if not asking.done():
                raise FeedUnavailable("it is not in charge any more")
            return asking.result()
        finally:
            asking.cancel()

    async def _append(self, url: str, sent: SentRequest, seconds: float) -> Answer:
        routes = self._queues.routes
        return await self._client.append(
            url,
            routes.identity,
            sent.request,
            catalog=routes.topology.catalog,
            seconds=seconds,
        )

    def _take(self, row: RowQueue, sent: SentRequest, answer: Answer) -> None:
        """Settle what an answer settles."""
        assert sent in row.sent, f"the fate of request {sent.request.number} of {row} is known"
        if isinstance(answer, AppendReceipt):
            self._freed(row.stored(sent))
            return
        sent.reason = answer.reason
        if answer.reason == "moved":
            row.closed_in = max(row.closed_in, answer.catalog, 1)
        elif answer.reason == "taken":
            self._freed(row.fail(sent, FeedRefused(_TAKEN)))

    # What has to be settled before more is sent.

    def _leave_unresolved(self, rows: Iterable[RowQueue]) -> None:
        self._unresolved.update(dict.fromkeys(rows))
        if self._unresolved and self._resolving is None:
            self._resolving = asyncio.create_task(self._resolve_all())

    async def _resolve_all(self) -> None:
        """Look at the catalog until every row can be sent to again, or was given up."""
        try:
            while self._unresolved:
                pause = _pause(min(x.attempts for x in self._unresolved))
                for row in self._unresolved:
                    row.attempts += 1
                try:
                    try:
                        await self._look_within(pause)
                    finally:
                        self._give_up_what_is_too_old()
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
        """Let those rows go on whose next step is known."""
        for row in [*self._unresolved]:
            if row.is_under_way:
                continue
            if row.is_closed:
                await self._ask_closed(row)
                self._move_on(row)
            elif url := self._queues.url(row):
                del self._unresolved[row]
                for sent in [*row.sent]:
                    self._go(row, sent, url)
                self._schedule(row)

    async def _ask_closed(self, row: RowQueue) -> None:
        """Learn which of its last requests a closed row has: any broker knows, its own last."""
        routes = self._queues.routes
        for url in sorted(routes.urls, key=lambda x: x == routes.url_of(row.broker)):
            for sent in [x for x in row.sent if not x.is_moved]:
                try:
                    answer = await self._append(url, sent, _ANSWER)
                except FeedUnavailable as error:
                    _log.debug("producer.waits", broker=url, reason=str(error))
                    break
                self._take(row, sent, answer)

    def _move_on(self, row: RowQueue) -> None:
        """Send elsewhere what a closed row has not, once that is known."""
        is_known = self._queues.routes.topology.catalog >= row.closed_in
        if is_known and all(x.is_moved for x in row.sent):
            moved = self._queues.move_on(row)
            del self._unresolved[row]
            for other in moved:
                self._schedule(other)

    def _give_up_what_is_too_old(self) -> None:
        limit = self._options.delivery_timeout
        error = FeedUnavailable(
            f"the brokers did not take it within {limit:g} s; it may be stored all the same"
        )
        self._give_up(error, since=asyncio.get_running_loop().time() - limit)

    def _give_up(self, error: Exception, *, since: float) -> None:
        for row in [*self._unresolved]:
            if not row.is_under_way:
                self._freed(row.fail_older(since, error))
            if not row.has_work and not row.is_closed:
                del self._unresolved[row]

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
        self._looked.set()
        self._looked = asyncio.Event()
        self._leave_unresolved(x for x in self._queues if x.is_closed)


def _pause(attempts: int) -> float:
    """Return how long to wait with another attempt, in seconds; the first is at once."""
    if not attempts:
        return 0.0
    return min(_FIRST_PAUSE * float(2 ** min(attempts - 1, 10)), _MAX_PAUSE)


_TAKEN = (
    "another producer uses the same id: these records were not stored. Look for a copy of this "
    "process that was made while it ran, and end one of the two"
)
