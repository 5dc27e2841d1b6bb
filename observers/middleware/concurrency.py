"""Several keys of one range at once, each key in order.

There are some lanes, each with an observer of its own: what the user wrote still sees one
call at a time, and a plain observer has a thread for each lane. The keys of a batch are
spread over the lanes so that each gets about as many changes, and a key stays in its lane.
The end of a batch is a barrier, so the order within a key holds across batches, too.
Wrappers that try again or put aside stand within the lanes.

A lane handles its changes in pieces, and what is done is acknowledged piece by piece: the
checkpoint follows the low watermark of all lanes. When a lane fails, the others finish the
piece they have in hand, and then the batch has failed; what is done counts as done unless
it lies above what is not. That comes again, as after a crash.

With manual checkpoints a batch may be accepted long before it is done, so there a key
has the same lane always, and lanes may get unequal shares. The user acknowledges; in a
lane, to checkpoint a change acknowledges what *this* observer was given up to it.

Limits: the slowest lane decides when a batch ends. A batch with one key uses one lane.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.errors import ObserverStuck
from changefeed.observers.observer import CloseReason, Context, Observer, ObserverFactory

_PIECE = 100


class ByKey:
    """``lanes`` observers that act as one, each handed ``piece`` changes at once."""

    def __init__(
        self,
        make_observer: ObserverFactory,
        lanes: int,
        *,
        manual: bool = False,
        piece: int = _PIECE,
    ) -> None:
        self._lanes = [_Lane(make_observer(), acknowledges=not manual) for _ in range(lanes)]
        self._manual = manual
        self._piece = piece
        self._failing = False

    async def open(self, context: Context) -> None:
        await _all_of(lane.open(context) for lane in self._lanes)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context  # each lane has its own view of it
        self._failing = False
        spread = spread_always_alike if self._manual else spread_evenly
        shares = spread(changes, len(self._lanes))
        await _all_of(
            self._work(lane, share)
            for lane, share in zip(self._lanes, shares, strict=True)
            if share
        )

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context
        await _all_of(lane.close(reason) for lane in self._lanes)

    async def _work(self, lane: "_Lane", share: Sequence[Change]) -> None:
        for first in range(0, len(share), self._piece):
            if self._failing:
                return
            try:
                await lane.process(share[first : first + self._piece])
            except BaseException:
                self._failing = True
                raise


def spread_evenly(changes: Sequence[Change], lanes: int) -> list[list[Change]]:
    """Give each key to the lane with the fewest changes, the most frequent keys first."""
    sizes = [0] * lanes
    lane_of: dict[str, int] = {}
    for key, count in Counter(x.key for x in changes).most_common():
        lane_of[key] = lane = sizes.index(min(sizes))
        sizes[lane] += count
    shares: list[list[Change]] = [[] for _ in range(lanes)]
    for change in changes:
        shares[lane_of[change.key]].append(change)
    return shares


def spread_always_alike(changes: Sequence[Change], lanes: int) -> list[list[Change]]:
    """Give each key to the lane it has in every batch."""
    shares: list[list[Change]] = [[] for _ in range(lanes)]
    for change in changes:
        digest = blake2b(change.key.encode(), digest_size=8).digest()
        shares[int.from_bytes(digest, "big") % lanes].append(change)
    return shares


class _Lane:
    """One observer, and its view of the context."""

    def __init__(self, observer: Observer, *, acknowledges: bool) -> None:
        self._observer = observer
        self._acknowledges = acknowledges
        self._context: _LaneContext | None = None

    async def open(self, context: Context) -> None:
        self._context = _LaneContext(context)
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
    def _opened(self) -> "_LaneContext":
        assert self._context is not None, "it was opened"
        return self._context


class _LaneContext:
    """What a lane's observer may say: things about the changes it was given, and no others.

    What lies before a change may be another lane's, so a checkpoint becomes
    acknowledgements. May be used from any thread.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[int, Change] = {}  # by sequence, in order
        self._turn = threading.Lock()

    @property
    def range(self) -> FeedRange:
        return self._context.range

    @property
    def host(self) -> str:
        return self._context.host

    @property
    def epoch(self) -> int:
        return self._context.epoch

    @property
    def handing_over(self) -> bool:
        return self._context.handing_over

    def deliver(self, changes: Sequence[Change]) -> None:
        with self._turn:
            self._open.update((x.sequence, x) for x in changes)

    def acknowledge(self, change: Change) -> None:
        with self._turn:
            self._open.pop(change.sequence, None)
        self._context.acknowledge(change)

    def checkpoint(self, change: Change) -> None:
        with self._turn:
            done = list(takewhile(lambda x: x.sequence <= change.sequence, self._open.values()))
            for one in done:
                del self._open[one.sequence]
        for one in reversed(done):  # the first at last: then the watermark moves only once
            self._context.acknowledge(one)

    async def flush(self) -> None:
        await self._context.flush()


async def _all_of(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until all have ended; then raise what the first of them raised.

    Not a ``TaskGroup``, which would cancel the others, and keep a second cancellation,
    the one that gives up a plain call, to itself.
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
    if any(x.cancelled() for x in tasks):  # from within: as it would go out without lanes
        raise asyncio.CancelledError


async def _cancelled(tasks: "Sequence[asyncio.Task[None]]") -> None:
    try:
        _cancel(tasks)
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        _cancel(tasks)
        raise


def _cancel(tasks: "Iterable[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()


def _errors(tasks: "Iterable[asyncio.Task[None]]") -> list[BaseException]:
    found = (x.exception() for x in tasks if not x.cancelled())
    return [x for x in found if x is not None]
