"""What a user writes: an observer, and what it learns from its host.

One observer is made for each lease a host holds; it sees the changes of one range, in
order, one call at a time. After ``close`` was called it is never called again.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from changefeed.feeds.feed import Change, FeedRange


class CloseReason(enum.Enum):
    """Why an observer is closed. The value is a sentence for people."""

    STOPPING = "the host is stopping"
    LEASE_LOST = "the lease was lost to another host or could not be renewed"
    HANDED_OVER = "the lease is handed over to another host"
    RANGE_ENDED = "the range has been read to its end"
    PAUSED = "the range is paused"
    FAILED = "reading the range or the observer itself failed"


class Context(Protocol):
    """What an observer may know about where its changes come from, and its checkpoints.

    Each observer has one of its own. What it says after its ``close`` counts no more: the
    changes have been, or will be, given to another.
    """

    @property
    def range(self) -> FeedRange: ...

    @property
    def host(self) -> str:
        """The name of the host that calls."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of the lease: a fencing token for writes to other systems."""
        ...

    @property
    def handing_over(self) -> bool:
        """Whether nothing more will be delivered here: finish what is in hand.

        The lease is about to be handed over, released or paused. May be asked from any
        thread.
        """
        ...

    @property
    def reset_epoch(self) -> int:
        """The epoch in which a person has last moved the position; 0 if nobody has.

        What an observer has kept of an epoch before it counts no more.
        """
        ...

    def checkpoint_with(self, changes: Sequence[Change]) -> str | None:
        """Return the checkpoint that is true once ``changes`` are done, for an observer that
        keeps it with what they became, in one transaction; ``open`` returns it.

        The text is opaque, some 20 to 3,000 characters. Without changes it says where the range
        stands. ``None`` outside of any lease: of a dead letter, or on Spark. Raise
        ``Failure`` if more keys wait than a checkpoint can name.
        """
        ...

    def acknowledge(self, change: Change) -> None:
        """Say that ``change`` alone is done, in whatever order.

        The checkpoint is the position below which everything is done; what lies above is
        delivered again, in order, to the next reader of the range. Otherwise as
        ``checkpoint``.
        """
        ...

    def checkpoint(self, change: Change) -> None:
        """Say that ``change`` and all before it in this range are done.

        Returns at once, may be called from any thread, and never moves back. It is
        written soon after; ``flush`` waits for that.
        """
        ...

    async def flush(self) -> None:
        """Wait until the last checkpoint said is stored."""
        ...


class Observer(Protocol):
    """The user's code, in the form the host calls it in.

    Users need not write this form: ``changefeed.observers.adapters`` makes one of any
    class with a ``process``, of plain methods (they then run in a thread of their own), and
    of a single function.

    It may have ``put_aside(context, change)``, which learns that a change is among the dead
    letters, and is handed over no more. The change counts as done once that has returned; if
    it raises, the change is put aside again.
    """

    async def open(self, context: Context) -> str | None:
        """Prepare for the changes of one range. If it raises, it is called again, later.

        Return where the range goes on, as ``context.checkpoint_with`` has said it, if the
        observer keeps that itself: this wins over the checkpoint of the lease, and needs
        ``observer.concurrency = 1``.
        """
        ...

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        """Handle some changes, at least one. Returning means they are done.

        Raising means that none of them are known to be done: they come again.
        Under manual checkpoints, returning means only that more may come.
        """
        ...

    async def close(self, context: Context, reason: CloseReason) -> None:
        """Let go of what ``open`` prepared. Called once, if ``open`` was called."""
        ...


ObserverFactory = Callable[[], Observer]
"""Makes a fresh observer for each lease."""
