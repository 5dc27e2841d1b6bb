"""Several keys of one range at once, each key in order.

There are some partitions of keys, each with an observer of its own: what the user wrote
still sees one call at a time, and a plain observer has a thread for each partition. The keys
of a batch are spread over the partitions so that each gets about as many changes, and a key
stays in its partition. The end of a batch is a barrier, so the order within a key holds
across batches, too. Wrappers that retry or put aside are within the partitions.

A partition handles its changes in pieces, and what is done is acknowledged piece by piece:
the checkpoint follows the low watermark of all partitions. When a partition fails, the others
finish the piece they have in hand, and then the batch has failed; what is done counts as done
unless it lies above what is not. That comes again, as after a crash.

With manual checkpoints a batch may be accepted long before it is done, so there a key
has the same partition always, and partitions may get unequal shares. The user acknowledges;
in a partition, to checkpoint a change acknowledges what *this* observer was given up to it.

Limits: the slowest partition decides when a batch ends. A batch with one key uses one
partition.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from hashlib import blake2b
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.observers.errors import ObserverStuck
from changefeed.observers.middleware.delivered import DeliveredContext
from changefeed.observers.observer import CloseReason, Context, Observer, ObserverFactory

_PIECE = 100


class KeyedConcurrency:
    """``partitions`` observers that act as one, each handed ``piece`` changes at once."""

    def __init__(
        self,
        make_observer: ObserverFactory,
        partitions: int,
        *,
        manual: bool = False,
        piece: int = _PIECE,
    ) -> None:
        self._partitions = [
            _Partition(make_observer(), acknowledges=not manual) for _ in range(partitions)
        ]
        self._manual = manual
        self._piece = piece
        self._failing = False

    async def open(self, context: Context) -> None:
        await _all_of(partition.open(context) for partition in self._partitions)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context  # each partition has its own view of it
        self._failing = False
        spread = spread_always_alike if self._manual else spread_evenly
        shares = spread(changes, len(self._partitions))
        assert sum(map(len, shares)) == len(changes), "each change is for one partition"
        await _all_of(
            self._work(partition, share)
            for partition, share in zip(self._partitions, shares, strict=True)
            if share
        )

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context
        await _all_of(partition.close(reason) for partition in self._partitions)

    async def _work(self, partition: "_Partition", share: Sequence[Change]) -> None:
        for first in range(0, len(share), self._piece):
            if self._failing:
                return
            try:
                await partition.process(share[first : first + self._piece])
            except BaseException:
                self._failing = True
                raise


def spread_evenly(changes: Sequence[Change], partitions: int) -> list[list[Change]]:
    """Give each key to the partition with the fewest changes, the most frequent keys first."""
    sizes = [0] * partitions
    lane_of: dict[str, int] = {}
    for key, count in Counter(x.key for x in changes).most_common():
        lane_of[key] = partition = sizes.index(min(sizes))
        sizes[partition] += count
    shares: list[list[Change]] = [[] for _ in range(partitions)]
    for change in changes:
        shares[lane_of[change.key]].append(change)
    return shares


def spread_always_alike(changes: Sequence[Change], partitions: int) -> list[list[Change]]:
    """Give each key to the partition it has in every batch."""
    shares: list[list[Change]] = [[] for _ in range(partitions)]
    for change in changes:
        digest = blake2b(change.key.encode(), digest_size=8).digest()
        shares[int.from_bytes(digest, "big") % partitions].append(change)
    return shares


class _Partition:
    """One observer, and its view of the context."""

    def __init__(self, observer: Observer, *, acknowledges: bool) -> None:
        self._observer = observer
        self._acknowledges = acknowledges
        self._context: DeliveredContext | None = None

    async def open(self, context: Context) -> None:
        self._context = DeliveredContext(context)
        await self._observer.open(self._context)

    async def process(self, changes: Sequence[Change]) -> None:
        context = self._opened
        context.deliver(changes)
        await self._observer.process(context, changes)
        if self._acknowledges:
            context.checkpoint(changes[-1])

    async def close(self, reason: CloseReason) -> None:
        await self._observer.close(self._opened, reason)

    @property
    def _opened(self) -> "DeliveredContext":
        assert self._context is not None, "it was opened"
        return self._context


async def _all_of(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until all have ended; then raise what the first of them raised.

    Not a ``TaskGroup``, which would cancel the others, and keep a second cancellation,
    the one that gives up a plain call, to itself. Each of them is passed on, and the calls are
    waited for until each has ended or is left behind.
    """
    tasks = [asyncio.create_task(x) for x in calls]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await _cancelled(tasks)
        for error in _errors(tasks):
            if isinstance(error, ObserverStuck):
                raise error from None
        raise
    errors = _errors(tasks)
    for error in sorted(errors, key=lambda x: not isinstance(x, ObserverStuck)):
        raise error
    if any(x.cancelled() for x in tasks):  # from within: as it would go out without partitions
        raise asyncio.CancelledError


async def _cancelled(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await _cancelled(tasks)
        raise


def _errors(tasks: "Iterable[asyncio.Task[None]]") -> list[BaseException]:
    found = (x.exception() for x in tasks if not x.cancelled())
    return [x for x in found if x is not None]
