"""Asks a container, page by page: the next page is on its way while one is made into rows."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from changefeed.feeds.addresses import FEEDS
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.backend import open_items_at
from changefeed.feeds.cosmos.items import CosmosItems, Query, ResultPage
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange
from changefeed.pipeline.source.feed_reader import RETRY_SECONDS
from changefeed.pipeline.source.loop_thread import LoopThread
from changefeed.pipeline.source.retries import retry_for
from changefeed.runtime.calls import for_each

if TYPE_CHECKING:
    from concurrent.futures import Future

_OPENING: Final = 20.0
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query of a range, or of a partition key, of the container with this ``identity``."""

    query: Query
    identity: str
    of: FeedRange | tuple[Any, ...]


class ItemAccess:
    """The items at an address, open on an event loop of its own, until ``close``.

    What does not answer is asked again for ``patience`` seconds. Raises ``FeedUnavailable`` and
    ``FeedRefused``. See ``source.reader.Access`` for the changes of any feed.
    """

    def __init__(
        self,
        address: str,
        cosmos: CosmosAccess | None = None,
        *,
        patience: float = RETRY_SECONDS,
    ) -> None:
        _, where = FEEDS.find(address)
        self._opening = open_items_at(where, cosmos or CosmosAccess.of(os.environ))
        self._patience = patience
        self._stack = AsyncExitStack()
        self._loop = LoopThread()
        try:
            self._items: CosmosItems = self._loop.run(
                retry_for(self._open, min(patience, _OPENING))
            )
        except BaseException:
            self._loop.close()
            raise
        self.paths = self._items.paths

    def identity(self) -> str:
        return self._items.identity

    def ranges(self) -> Sequence[FeedRange]:
        return self._loop.run(retry_for(self._items.ranges, self._patience))

    def holders(self, keys: Sequence[Sequence[Any]]) -> Sequence[FeedRange]:
        """Return the range of each partition key, of those that were listed last."""
        return self._loop.run(for_each(keys, self._items.holder, at_once=_AT_ONCE))

    def check(self, query: str) -> None:
        """Raise ``FeedRefused`` for a query that one range cannot answer by itself."""
        self._loop.run(retry_for(lambda: self._items.check(query), self._patience))

    def results(self, question: Question) -> Iterator[Sequence[msgspec.Raw]]:
        """Yield what a query finds, each result as its JSON, some at a time."""
        if question.identity != self.identity():
            raise FeedRefused(
                "the container was deleted and recreated after the batch was planned: read it "
                "again"
            )
        waiting = deque([(question.of, "")])

        def ask() -> "Future[ResultPage | Sequence[FeedRange]]":
            at, after = waiting[0]
            return self._loop.start(self._page(at, question.query, after))

        asked = ask()
        try:
            while waiting:
                page = asked.result()
                at, after = waiting.popleft()
                if isinstance(page, Sequence):  # the ranges to read in its place
                    waiting.extendleft((x, after) for x in reversed(page))
                elif page.after:
                    waiting.appendleft((at, page.after))
                if waiting:
                    asked = ask()
                if isinstance(page, ResultPage) and page.results:
                    yield page.results
        finally:
            asked.cancel()

    def close(self) -> None:
        try:
            self._loop.run(self._stack.aclose())
        finally:
            self._loop.close()

    async def _page(
        self, at: FeedRange | tuple[Any, ...], query: Query, after: str
    ) -> ResultPage | Sequence[FeedRange]:
        async def ask() -> ResultPage | Sequence[FeedRange]:
            if isinstance(at, FeedRange):
                return await self._items.page(at, query, after)
            return await self._items.page_of_key(at, query, after)

        return await retry_for(ask, self._patience)

    async def _open(self) -> CosmosItems:
        return await self._stack.enter_async_context(self._opening)
