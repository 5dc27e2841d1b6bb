"""Keeps from the observer what no observer is to be given: changes that the feed could not
read, and a change that has killed its process again and again.

Such a change is put to the dead letters as it came; the others of its batch are handed on,
in their order. Without dead letters the range is refused at that change, and so is
paused by its host: a person has to mend the item, or the observer, as no attempt will.
"""

from collections.abc import Sequence
from itertools import groupby

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change, unreadable_text
from changefeed.observers.call import Blame, RangeContext
from changefeed.observers.dead_letters.letter import Failure
from changefeed.observers.middleware.aside import Aside
from changefeed.observers.observer import CloseReason, Context, Observer


class ReadableOnly:
    """Wraps an observer. With ``acknowledges`` it reports to the context what is done."""

    def __init__(
        self,
        observer: Observer,
        aside: Aside | None,
        gate: RangeContext,
        *,
        acknowledges: bool = True,
    ) -> None:
        self._observer = observer
        self._aside = aside
        self._gate = gate
        self._acknowledges = acknowledges

    async def open(self, context: Context) -> None:
        await self._observer.open(context)

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._observer.close(context, reason)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self._gate.blamed is not None:
            (change,) = changes
            await self._put_killer_aside(context, change, self._gate.blamed)
            return
        unreadable = [x for x in changes if x.unreadable is not None]
        if not unreadable:  # a generator would cost more than all else that a host does
            await self._observer.process(context, changes)
            return
        for readable, found in groupby(changes, key=lambda x: x.unreadable is None):
            piece = [*found]
            if readable:
                await self._observer.process(context, piece)
                self._acknowledge(context, piece)
            else:
                for change in piece:
                    await self._put_aside(context, change)

    def _acknowledge(self, context: Context, changes: Sequence[Change]) -> None:
        if self._acknowledges:
            for change in changes:
                context.acknowledge(change)

    async def _put_aside(self, context: Context, change: Change) -> None:
        assert change.unreadable is not None, "the others are handed on"
        if self._aside is None:
            raise RangeRefused(context.range.id, unreadable_text(change))
        self._gate.check()
        failure = Failure(kind="Unreadable", text=change.unreadable, trace="")
        await self._aside.put(context, change, failure, attempts=0)

    async def _put_killer_aside(self, context: Context, change: Change, blamed: Blame) -> None:
        if self._aside is None:
            raise RangeRefused(
                context.range.id,
                f"the change at sequence {change.sequence} {blamed.reason}. Mend the observer, "
                f"or let the change be put aside (observer.on_failure = 'dead-letter'), and "
                f"resume the range",
            )
        self._gate.check()
        failure = Failure(kind="Killed", text=blamed.reason, trace="")
        await self._aside.put(context, change, failure, attempts=blamed.times)
