"""Has a span around each call of ``process``; see ``changefeed.observers.tracing``."""

from collections.abc import Sequence

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason, Context, Observer
from changefeed.observers.tracing import BatchTracing


class TracedObserver:
    """The outermost wrapper: what the others do with a batch is inside its span."""

    def __init__(self, observer: Observer, tracing: BatchTracing) -> None:
        self._observer = observer
        self._tracing = tracing

    async def open(self, context: Context) -> None:
        await self._observer.open(context)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        with self._tracing.batch(context, changes):
            await self._observer.process(context, changes)

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._observer.close(context, reason)
