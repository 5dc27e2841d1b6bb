"""Sending what lies in a producer's lanes: which broker gets what, again and again.

An outlet is a broker with the lanes that have something for it, and has one request at a
time. A lane whose batch was not taken is set aside; one task looks at the catalog until each
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
from changefeed.feeds.brokers.lanes import BATCH_BYTES, Delivery, Lane, Lanes, Placed
from changefeed.feeds.brokers.protocol import Answer, Appended
from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.runtime.logs import get_logger

_log = get_logger()

REQUEST_BYTES: Final = 4 * 1024 * 1024
_LOOK = 1.0
"""A request that takes longer is a reason to look whether its broker is still in charge."""
_ANSWER = 3.0
"""What a broker may take that has nothing to write."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
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


class _Outlet:
    """One broker: the lanes that have something for it, and whether it has a request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ready: dict[Lane, None] = {}
        self.busy = False
        self.next: asyncio.Handle | None = None

    def take(self) -> Sequence[Lane]:
        """Return the lanes of the next request, those that waited longest first."""
        taken: list[Lane] = []
        size = 0
        for lane in [*self.ready]:
            size += lane.next_bytes
            if taken and size > REQUEST_BYTES + BATCH_BYTES:
                break
            del self.ready[lane]
            taken.append(lane)
        return taken


class Sender:
    """Sends until ``stop``. ``freed`` is called with the bytes that are off its hands."""

    def __init__(
        self,
        client: BrokerClient,
        lanes: Lanes,
        options: ProducerOptions,
        *,
        freed: Callable[[int], None],
    ) -> None:
        self._client = client
        self._lanes = lanes
        self._options = options
        self._freed = freed
        self._id = uuid4().hex
        self._outlets: dict[str, _Outlet] = {}
        self._aside: dict[Lane, None] = {}
        self._settling: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    def put(self, records: Sequence[Placed], delivery: Delivery) -> None:
        """Take records. Raise ``FeedUnavailable`` where no partition is there for one."""
        now = asyncio.get_running_loop().time()
        self._make_ready(self._lanes.put(records, delivery, now))

    async def stop(self) -> None:
        for outlet in self._outlets.values():
            if outlet.next is not None:
                outlet.next.cancel()
        tasks = [*self._requests, *([self._settling] if self._settling else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Requests.

    def _make_ready(self, lanes: Iterable[Lane]) -> None:
        """Let lanes be sent that have something, unless that has to be settled first."""
        touched: dict[_Outlet, None] = {}
        for lane in lanes:
            if lane.in_flight or lane in self._aside or not lane.has_work:
                continue
            url = self._lanes.routes.to_write(lane.partition)
            if not url:
                self._set_aside([lane])
                continue
            outlet = self._outlets.get(url)
            if outlet is None:
                outlet = self._outlets[url] = _Outlet(url)
            outlet.ready[lane] = None
            touched[outlet] = None
        for outlet in touched:
            self._poke(outlet)

    def _poke(self, outlet: _Outlet) -> None:
        """Send in the next turn of the loop, with what else is handed over in this one.

        What comes while a request is under way goes with the next one: no clock is needed.
        """
        if outlet.next is None and outlet.ready and not outlet.busy:
            outlet.next = asyncio.get_running_loop().call_soon(self._send, outlet)

    def _send(self, outlet: _Outlet) -> None:
        outlet.next = None
        if outlet.busy or not outlet.ready:
            return
        lanes = outlet.take()
        assert lanes, f"a request without a batch to {outlet.url}"
        assert not any(x.in_flight for x in lanes), "a lane has one batch on its way"
        for lane in lanes:
            lane.in_flight, lane.sent_to = True, outlet.url
        outlet.busy = True
        task = asyncio.create_task(self._deliver(outlet, lanes))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _deliver(self, outlet: _Outlet, lanes: Sequence[Lane]) -> None:
        """Send one batch of each lane, and see what became of it."""
        assert outlet.busy, f"{outlet.url} has one request at a time"
        aside: Sequence[Lane] = ()
        try:
            answers = await self._ask(outlet.url, lanes)
            aside = self._take_answers(lanes, answers)
        except FeedUnavailable as error:
            _log.debug("producer.waits", broker=outlet.url, reason=str(error))
            aside = lanes
        except Exception as error:
            for lane in lanes:
                if lane.sent is not None:
                    self._freed(lane.fail(error))
            if not isinstance(error, FeedError):
                raise  # a bug of ours
        finally:
            for lane in lanes:
                lane.in_flight = False
            outlet.busy = False
        self._set_aside(aside)
        self._make_ready(lanes)
        self._poke(outlet)

    async def _ask(self, url: str, lanes: Sequence[Lane]) -> Sequence[Answer]:
        """Append at a broker, as long as it is in charge of the partitions."""
        asking = asyncio.create_task(
            self._client.append(
                url,
                self._lanes.routes.identity,
                [x.batch(self._id) for x in lanes],
                catalog=self._lanes.routes.topology.catalog,
                seconds=self._options.request_timeout,
            )
        )
        closing: asyncio.Task[None] | None = None
        try:
            if not (await asyncio.wait({asking}, timeout=_LOOK))[0]:
                closing = asyncio.create_task(self._until_closed(lanes))
                await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if closing is not None and not asking.done():
                closing.result()
                raise FeedUnavailable("it is not in charge any more")
            return asking.result()
        finally:
            asking.cancel()
            if closing is not None:
                closing.cancel()

    async def _until_closed(self, lanes: Sequence[Lane]) -> None:
        """Look at the catalog until the partitions of all these are closed."""
        while not all(x.is_closed for x in lanes):
            with suppress(FeedUnavailable):
                await self._look_within(_LOOK)

    def _take_answers(self, lanes: Sequence[Lane], answers: Sequence[Answer]) -> Sequence[Lane]:
        """Settle what was stored; return the lanes to set aside."""
        aside = []
        for lane, answer in zip(lanes, answers, strict=True):
            if isinstance(answer, Appended):
                self._freed(lane.stored())
                continue
            if answer.reason == "moved":
                lane.closed_in = max(lane.closed_in, answer.catalog, 1)
            if answer.reason == "moved" and answer.reached is not None:
                self._freed(lane.stored_up_to(answer.reached))
            elif answer.reason == "moved":
                self._freed(lane.fail(FeedUnavailable(_FATE_UNKNOWN)))
            elif answer.reason == "gap":
                lane.begin_again()
            elif answer.reason == "taken":
                self._freed(lane.fail(FeedRefused(_TAKEN)))
            aside.append(lane)
        return aside

    # What has to be settled before more is sent.

    def _set_aside(self, lanes: Iterable[Lane]) -> None:
        self._aside.update(dict.fromkeys(lanes))
        if self._aside and self._settling is None:
            self._settling = asyncio.create_task(self._settle_all())

    async def _settle_all(self) -> None:
        """Look at the catalog until every lane can be sent again, or was given up."""
        try:
            while self._aside:
                pause = _pause(min(x.attempts for x in self._aside))
                for lane in self._aside:
                    lane.attempts += 1
                self._give_up_what_is_too_old()
                try:
                    await self._look_within(pause)
                    await self._settle()
                except FeedUnavailable as error:
                    _log.debug("producer.waits", reason=str(error))
                except FeedError as error:
                    self._give_up(error, since=_FOREVER)
        except Exception as error:
            self._give_up(error, since=_FOREVER)  # a bug of ours: no caller waits for ever
            raise
        finally:
            self._settling = None

    async def _settle(self) -> None:
        """Let those lanes go on whose next step is known."""
        await self._ask_closed([x for x in self._aside if x.is_closed and x.sent])
        for lane in [*self._aside]:
            assert not lane.in_flight, f"a batch of {lane.id} is on its way"
            if not lane.is_closed:
                if self._lanes.routes.to_write(lane.partition):
                    del self._aside[lane]
                    self._make_ready([lane])
                continue
            if lane.sent is None and self._lanes.routes.topology.catalog >= lane.closed_in:
                moved = self._lanes.move_on(lane)
                del self._aside[lane]
                self._make_ready(moved)

    async def _ask_closed(self, lanes: Sequence[Lane]) -> None:
        """Learn how much of their last batches closed partitions have: any broker knows."""
        asked = Counter(x.sent_to for x in lanes)
        for url in sorted(self._lanes.routes.urls, key=lambda x: asked[x]):
            unknown = [x for x in lanes if x.sent is not None]
            for some in _requests(unknown):
                try:
                    answers = await self._ask_once(url, some)
                except FeedUnavailable as error:
                    _log.debug("producer.waits", broker=url, reason=str(error))
                    break
                self._take_answers(some, answers)

    async def _ask_once(self, url: str, lanes: Sequence[Lane]) -> Sequence[Answer]:
        return await self._client.append(
            url,
            self._lanes.routes.identity,
            [x.batch(self._id) for x in lanes],
            catalog=self._lanes.routes.topology.catalog,
            seconds=_ANSWER,
        )

    def _give_up_what_is_too_old(self) -> None:
        limit = self._options.delivery_timeout
        error = FeedUnavailable(
            f"the brokers did not take it within {limit:g} s; it may be stored all the same"
        )
        self._give_up(error, since=asyncio.get_running_loop().time() - limit)

    def _give_up(self, error: Exception, *, since: float) -> None:
        for lane in [*self._aside]:
            self._freed(lane.fail_older(since, error))
            if not lane.has_work and not lane.is_closed:
                del self._aside[lane]

    async def _look_within(self, seconds: float) -> None:
        """Look, and return as soon as there is a newer catalog, or after so many seconds."""
        loop, known = asyncio.get_running_loop(), self._lanes.routes.topology.catalog
        until = loop.time() + seconds
        try:
            await self._look(wait=seconds)
        except FeedUnavailable:
            await asyncio.sleep(until - loop.time())
            raise
        if self._lanes.routes.topology.catalog == known:
            await asyncio.sleep(until - loop.time())

    async def _look(self, *, wait: float) -> None:
        """Learn the newest topology; what lies ready is sorted by it."""
        known = self._lanes.routes.topology
        wanted = max((x.closed_in for x in self._aside), default=0)
        found = await self._client.routes(
            at_least=wanted, newer_than=known.catalog, wait=wait, since_era=known.era
        )
        if found.identity != known.identity:
            raise FeedRefused(
                f"the collection {known.collection!r} was deleted and created again: open "
                f"another producer"
            )
        if found.topology.catalog <= known.catalog:
            return
        self._lanes.adopt(found)
        for outlet in self._outlets.values():
            outlet.ready.clear()
        idle = [x for x in self._lanes if not x.in_flight]
        self._set_aside(x for x in idle if x.is_closed)
        self._make_ready(idle)


def _requests(lanes: Sequence[Lane]) -> Iterator[Sequence[Lane]]:
    """Share lanes out to requests of a size that brokers take."""
    taken: list[Lane] = []
    size = 0
    for lane in lanes:
        if taken and size + lane.next_bytes > REQUEST_BYTES:
            yield taken
            taken, size = [], 0
        taken.append(lane)
        size += lane.next_bytes
    if taken:
        yield taken


def _pause(attempts: int) -> float:
    """Return how long to wait with another attempt, in seconds; the first is at once."""
    if not attempts:
        return 0.0
    return min(_FIRST_PAUSE * float(2 ** min(attempts - 1, 10)), _LONGEST_PAUSE)


_TAKEN = (
    "another producer uses the same id: these records were not stored. Look for a copy of this "
    "process that was made while it ran, and end one of the two"
)
_FATE_UNKNOWN = (
    "its partition was closed so long ago that brokers do not know any more whether it was "
    "stored: look for it before sending it again"
)
