"""A context for an observer that is not given every change of its range, nor all in order."""

import threading
from collections.abc import Sequence
from itertools import takewhile

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.observer import Context


class DeliveredContext:
    """What the observer may say: things about the changes it was given only.

    What lies before a change may be another partition's, or may have failed. So a checkpoint
    becomes acknowledgements. May be used from any thread.
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
        """Let checkpoints count for these, from now on."""
        with self._turn:
            before = next(reversed(self._open), -1)
            self._open.update((x.sequence, x) for x in changes)
            if changes[0].sequence <= before:
                self._open = dict(sorted(self._open.items()))

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
            done = list(takewhile(lambda x: x.sequence <= change.sequence, self._open.values()))
            for one in done:
                del self._open[one.sequence]
        for one in reversed(done):  # the first at last: then the watermark moves only once
            self._context.acknowledge(one)

    async def flush(self) -> None:
        await self._context.flush()
