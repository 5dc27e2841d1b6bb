"""The context of one observer: what it may say of the changes that it was given.

What lies before a change may be another observer's, may wait, or may have failed. So to
checkpoint a change acknowledges what this observer was given up to it and has not failed on,
and counts for no change that was given again after it: that one is in hand.
"""

import asyncio
import concurrent.futures
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.call import RangeContext

_sequence = attrgetter("sequence")
_KEPT = 16  # batches that are done and not forgotten yet


class ObserverContext:
    """May be used from any thread."""

    def __init__(self, context: RangeContext) -> None:
        self.range: FeedRange = context.range
        self.host: str = context.host
        self.epoch: int = context.epoch
        self.reset_epoch: int = context.reset_epoch
        self.flush = context.flush
        self._context = context
        self._given: dict[int, Sequence[Change]] = {}
        self._number = 0
        self._most = _KEPT
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._closed = False

    @property
    def handing_over(self) -> bool:
        return self._context.handing_over

    # what is given

    def give(self, changes: Sequence[Change]) -> None:
        """Let what the observer says count for these, from now on."""
        assert changes, "an empty batch is nothing to checkpoint"
        self._number += 1
        if len(self._given) >= self._most:
            given, is_open = self._given.items(), self._context.is_open
            self._given = {n: x for n, x in given if any(map(is_open, x))}
            self._most = _KEPT + 2 * len(self._given)
        self._given[self._number] = changes

    def forget(self) -> None:
        """Let no checkpoint count for what was given last, or is left of it: it is done, or
        the observer has failed on it.
        """
        self._given.pop(self._number, None)

    def close(self) -> None:
        """Count nothing more that the observer says."""
        self._closed = True

    def checkpoint_with(self, changes: Sequence[Change]) -> str | None:
        if threading.get_ident() == self._thread:
            return self._context.checkpoint_with(changes)
        said = concurrent.futures.Future[str | None]()
        self._loop.call_soon_threadsafe(self._answer, said, changes)
        return said.result()

    def _answer(
        self, said: "concurrent.futures.Future[str | None]", changes: Sequence[Change]
    ) -> None:
        try:
            said.set_result(self._context.checkpoint_with(changes))
        except Exception as error:  # noqa: BLE001 - raised in the thread that has asked
            said.set_exception(error)

    # what is said

    def acknowledge(self, change: Change) -> None:
        self._say(change, up_to=False)

    def checkpoint(self, change: Change) -> None:
        self._say(change, up_to=True)

    def _say(self, change: Change, *, up_to: bool) -> None:
        of_this = change.range_id in {self.range.id, self.range.whole}
        if not (of_this and self._context.was_read(change)):
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        count = self._count_up_to if up_to else self._count
        if threading.get_ident() == self._thread:
            count(change, self._number)
        else:
            self._loop.call_soon_threadsafe(partial(count, change, self._number))

    def _count(self, change: Change, _: int) -> None:
        if not self._closed:
            self._context.acknowledge([change])

    def _count_up_to(self, change: Change, number: int) -> None:
        """Count for the batches up to the last one that had the change by then."""
        given = self._given.items()
        last = max((n for n, x in given if n <= number and _has(x, change)), default=0)
        done, left = list[Sequence[Change]](), dict[int, Sequence[Change]]()
        for n, changes in given:
            cut = bisect_right(changes, change.sequence, key=_sequence) if n <= last else 0
            if cut:
                done.append(changes[:cut])
            if cut < len(changes):
                left[n] = changes[cut:]
        self._given = left
        for changes in done if not self._closed else ():
            self._context.acknowledge(changes)


def _has(changes: Sequence[Change], change: Change) -> bool:
    at = bisect_left(changes, change.sequence, key=_sequence)
    return at < len(changes) and changes[at].sequence == change.sequence
