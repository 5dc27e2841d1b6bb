"""A context for an observer that is not given every change of its range, nor all in order."""

import threading
from collections.abc import Sequence
from itertools import takewhile

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.observer import Context


class DeliveredContext:
    """What the observer may say: things about the changes it was given only.

    What lies before a change may be another partition's, or may have failed. So a checkpoint
    becomes acknowledgements. It counts for what was given up to that change, not for an
    earlier one that is given again after it: that one is in hand. May be used from any thread.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[int, Change] = {}  # by sequence, in order
        self._given: dict[int, int] = {}  # in which delivery it came last
        self._deliveries = 0
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
        """Let checkpoints count for these, from now on."""
        assert changes, "an empty batch is nothing to checkpoint"
        with self._turn:
            before = next(reversed(self._open), -1)
            self._open.update((x.sequence, x) for x in changes)
            if changes[0].sequence <= before:
                self._open = dict(sorted(self._open.items()))
            self._deliveries += 1
            self._given.update((x.sequence, self._deliveries) for x in changes)
            if len(self._given) > 2 * len(self._open):
                first = next(iter(self._open))
                self._given = {x: y for x, y in self._given.items() if x >= first}

    def withdraw(self, changes: Sequence[Change]) -> None:
        """Let no checkpoint count for these: the observer has failed on them."""
        with self._turn:
            for change in changes:
                self._open.pop(change.sequence, None)

    def acknowledge(self, change: Change) -> None:
        with self._turn:
            self._open.pop(change.sequence, None)
        self._context.acknowledge(change)

    def checkpoint(self, change: Change) -> None:
        with self._turn:
            up_to = takewhile(lambda x: x.sequence <= change.sequence, self._open.values())
            given = self._given.get(change.sequence, 0)
            done = [x for x in up_to if self._given[x.sequence] <= given]
            for one in done:
                del self._open[one.sequence]
        for one in reversed(done):  # the first at last: then the watermark moves only once
            self._context.acknowledge(one)

    async def flush(self) -> None:
        await self._context.flush()
