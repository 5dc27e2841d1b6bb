"""The collection of a run as its cluster's store has it: no broker has to run for that."""

from collections.abc import Mapping, Sequence
from typing import Self

from changefeed.feeds.brokers.stored_collection import StoredCollection
from changefeed.feeds.brokers.stores.addresses import open_store
from changefeed.feeds.eventlog.ids import position, sequence_in
from changefeed.feeds.feed import FeedRange, Position, RangeId, StartAt


class StoredFlights:
    """The little of a feed that a proof needs. Make it with ``open``."""

    def __init__(self, collection: StoredCollection) -> None:
        self._collection = collection

    @classmethod
    async def open(cls, cluster: str, name: str) -> Self:
        """Raise ``FeedRefused`` where there is no cluster, or no such collection."""
        return cls(await StoredCollection.open(open_store(cluster), name))

    async def ranges(self) -> Sequence[FeedRange]:
        return (await self._collection.routes()).ranges

    async def start(self, _: FeedRange, at: StartAt) -> Position:
        assert at == "beginning", "a proof looks at all of it"
        return position(self._identity, 0)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        ends = await self._collection.ends([x.id for x in at])
        return {
            x.id: ends[x.id].last - sequence_in(x.id, after, self._identity)
            for x, after in at.items()
        }

    @property
    def _identity(self) -> str:
        return self._collection.collection.identity
