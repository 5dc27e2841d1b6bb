"""A host of another kind, which shares the leases: the .NET change feed processor's ways.

It writes whole documents and drops what it does not know. It takes what is free, or looks
expired by its own clock, and steals one lease at once if it reads too little: it asks
nobody, and knows no epochs, no pauses, no ended ranges and no fence. A batch that it has in
hand is finished, however late; its checkpoint then finds that the lease has another owner.

Written from ``EqualPartitionsBalancingStrategy`` and the facts about its documents, without
code of ours but for the items and the feed that it reads.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar

from changefeed.feeds.errors import FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import (
    Change,
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.cosmos.items import Items
from tests.support.dotnet_processor import Document, new_lease, rewritten

T = TypeVar("T")

ALL = "SELECT * FROM c WHERE STARTSWITH(c.id, @begin)"
EXPIRATION, _RENEW_INTERVAL, _ACQUIRE_INTERVAL, _POLL = 30.0, 9.0, 6.0, 2.0
_PATIENCE = 10.0
_ATTEMPTS = 5
_PAGE = 20


class LeaseLost(Exception):
    """The lease has another owner, or is gone."""


_FAILURES = (StoreUnavailable, FeedUnavailable, RangeUnknown, TimeoutError, LeaseLost)


def leases_to_take(listed: Sequence[Document], me: str, now: datetime) -> list[Document]:
    """Pick what is free or expired, up to one's share; else steal one of the most loaded."""
    loads, free = Counter({me: 0}), []
    for lease in listed:
        if lease["Owner"] is None or _is_expired(lease, now):
            free.append(lease)
        else:
            loads[lease["Owner"]] += 1
    share = -(-len(listed) // len(loads))
    wanted = share - loads[me]
    if wanted <= 0:
        return []
    if free:
        return free[:wanted]
    most, load = max(loads.items(), key=lambda x: x[1])
    if load <= share - (1 if wanted > 1 else 0):
        return []
    return [x for x in listed if x["Owner"] == most][:1]


def _is_expired(lease: Document, now: datetime) -> bool:
    stamp = lease["timestamp"]
    if stamp is None:
        return True
    return datetime.fromisoformat(stamp) + timedelta(seconds=EXPIRATION) < now


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounded:
    """What is around one such host. ``process`` is given what an observer is; it may fail.

    ``at_the_end`` is told of a range that was read to its end, before others go on with it.
    """

    items: Items
    feed: Feed
    prefix: str
    now: Callable[[], float]
    random: Random
    process: Callable[[Sequence[Change]], Awaitable[None]]
    at_the_end: Callable[[RangeId], None]


class DotNetLikeHost:
    def __init__(self, name: str, around: Surrounded) -> None:
        self.name = name
        self._around = around
        self._stop = asyncio.Event()
        self._readers: dict[str, asyncio.Task[None]] = {}

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Balance until asked to stop; then give up all leases, as far as that works."""
        while not self._stop.is_set():
            with suppress(*_FAILURES):
                await self._balance()
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    _ACQUIRE_INTERVAL * self._around.random.uniform(0.9, 1.1)
                ):
                    await self._stop.wait()
        for reader in self._readers.values():
            reader.cancel()
        if self._readers:
            await asyncio.wait(self._readers.values())
        for name in self._readers:
            with suppress(*_FAILURES):
                await self._update(name, owner=self.name, Owner=None)

    async def _balance(self) -> None:
        around = self._around
        self._readers = {x: y for x, y in self._readers.items() if not y.done()}
        begin = f"{around.prefix}.."
        listed = await _in_time(around.items.query(ALL, begin=begin))
        for lease in leases_to_take(listed, self.name, self._now()):
            if lease["id"] in self._readers:
                continue  # its reader finds out by itself
            with suppress(*_FAILURES):
                taken = await self._update(lease["id"], owner=lease["Owner"], Owner=self.name)
                reader = self._run_reader(taken)
                self._readers[lease["id"]] = asyncio.create_task(reader)

    async def _run_reader(self, lease: Document) -> None:
        """Read and renew until one of them fails; then give the lease up."""
        jobs = [asyncio.create_task(x) for x in (self._renew(lease), self._read(lease))]
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
        with suppress(*_FAILURES):
            await self._update(lease["id"], owner=self.name, Owner=None)

    async def _renew(self, lease: Document) -> None:
        while True:
            await asyncio.sleep(_RENEW_INTERVAL)
            with suppress(StoreUnavailable, TimeoutError):
                await self._update(lease["id"], owner=self.name)

    async def _read(self, lease: Document) -> None:
        feed, found = self._around.feed, _range_of(lease)
        token = lease["ContinuationToken"]
        if token is None:
            token = await _in_time(feed.start(found, "beginning"))
        position = Position(token)
        while True:
            try:
                page = await _in_time(feed.read(found, position, _PAGE))
            except RangeEnded as end:
                await self._split(lease, end)
                return
            except (FeedUnavailable, TimeoutError):
                await asyncio.sleep(_POLL)
                continue
            if page.changes:
                await self._around.process(page.changes)
                await self._update(
                    lease["id"], owner=self.name, ContinuationToken=page.position
                )
            else:
                await asyncio.sleep(_POLL)
            position = page.position

    async def _split(self, lease: Document, end: RangeEnded) -> None:
        """Create the leases of what goes on, and then delete the one that has ended."""
        items, prefix = self._around.items, self._around.prefix
        stored = await _in_time(items.read(lease["id"]))
        if stored is None or stored["Owner"] != self.name:
            raise LeaseLost
        self._around.at_the_end(end.range_id)
        for child in end.children:
            found = child.range
            made = new_lease(prefix, found.id, found.low, found.high)
            made |= {"ContinuationToken": child.start, "properties": stored["properties"]}
            await _in_time(items.create(made))
        await _in_time(items.delete(lease["id"], stored["_etag"]))

    async def _update(self, name: str, *, owner: str | None, **changed: object) -> Document:
        """Replace a document, while its owner is the one that is expected."""
        items = self._around.items
        for _ in range(_ATTEMPTS):
            stored = await _in_time(items.read(name))
            if stored is None or stored["Owner"] != owner:
                raise LeaseLost
            document = rewritten(stored, self._now(), **changed)
            etag = await _in_time(items.replace(document, stored["_etag"]))
            if etag is not None:
                return document | {"_etag": etag}
        raise LeaseLost

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._around.now(), UTC)


def _range_of(lease: Document) -> FeedRange:
    bounds = lease["FeedRange"]["Range"]
    return FeedRange(id=RangeId(lease["LeaseToken"]), low=bounds["min"], high=bounds["max"])


async def _in_time(call: Awaitable[T]) -> T:
    async with asyncio.timeout(_PATIENCE):
        return await call
