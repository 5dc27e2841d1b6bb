"""A collection as a feed for hosts, read from the store of its cluster and not through brokers.

Nobody tells such a reader of what is new: it looks whenever it is asked.
"""

from collections.abc import Iterable, Mapping

from changefeed.feeds.brokers.protocol import ReadResult
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.stored_collection import StoredCollection
from changefeed.feeds.brokers.wire import PartitionBounds, PartitionNews
from changefeed.feeds.feed import RangeId


class StoredSource:
    """See ``feeds.brokers.feed.Source``. It never waits, and needs no URLs."""

    def __init__(self, stored: StoredCollection) -> None:
        self._stored = stored

    @property
    def collection(self) -> str:
        return self._stored.name

    async def routes(self, *, at_least: int = 0) -> Routes:
        del at_least  # it is the newest
        return await self._stored.routes()

    async def read(
        self,
        urls: Iterable[str],
        log: str,
        partition: RangeId,
        *,
        after: int,
        most: int,
        wait: float,
    ) -> ReadResult:
        del urls, log, wait
        return await self._stored.read(partition, after, most)

    async def end(self, urls: Iterable[str], log: str, partition: RangeId) -> PartitionBounds:
        del urls, log
        return (await self._stored.ends([partition]))[partition]

    async def ends(
        self, urls: Iterable[str], log: str, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, PartitionNews]:
        del urls, log, wait
        found = {}
        for name, end in (await self._stored.ends([*after])).items():
            ended = await self._stored.has_ended(name)
            if ended or end.last != after[name]:
                found[name] = PartitionNews(last=end.last, ended=ended)
        return found

    async def sequence_before(
        self, urls: Iterable[str], log: str, partition: RangeId, time_us: int
    ) -> int:
        del urls, log
        return await self._stored.sequence_before(partition, time_us)
