"""The check before each call of an observer: whether it may still be called.

Between two attempts a lease may be lost, and a process may have been frozen for longer
than its lease lived. So the innermost wrapper asks before *every* call, not only before
the first, and a wrapper that waits does it through the gate as well.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.observer import CloseReason, Context, Observer


class Fence(Protocol):
    """What the caller of the observers of one range allows."""

    def check(self) -> None:
        """Raise ``LeaseFenced`` if nothing may be delivered any more."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; raise ``ObserverFailed`` when waiting has lost its point."""
        ...


ObserverMaker = Callable[[FeedRange, Fence], Observer]
"""Makes the observer of one range, wrapped as the settings say, behind a gate."""


class FencedObserver:
    """Asks the gate before it calls."""

    def __init__(self, observer: Observer, gate: Fence) -> None:
        self._observer = observer
        self._gate = gate

    async def open(self, context: Context) -> None:
        self._gate.check()
        await self._observer.open(context)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self._gate.check()
        await self._observer.process(context, changes)

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._observer.close(context, reason)
