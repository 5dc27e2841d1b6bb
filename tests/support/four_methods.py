"""A feed over another one, which has what every feed must have, and nothing else."""

from collections.abc import Sequence

from changefeed.feeds.feed import Change, Feed, FeedRange, Page, Position, StartAt


class FourMethods(Feed):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def identity(self) -> str:
        return self._feed.identity

    async def ranges(self) -> Sequence[FeedRange]:
        return await self._feed.ranges()

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        return await self._feed.start(found, at)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        return await self._feed.read(found, after, limit)

    def position_after(self, change: Change) -> Position:
        return self._feed.position_after(change)
