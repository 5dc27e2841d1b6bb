"""Where the partitions of a collection are read: brokers, or the store of their cluster."""

from collections.abc import Mapping
from typing import Protocol

from changefeed.feeds.feed import RangeId
from changefeed.log.protocol.messages import ReadResult
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionBounds, PartitionNews


class Source(Protocol):
    """Raises what feeds raise, but for ``RangeEnded``. Partitions are those of ``routes``."""

    @property
    def name(self) -> str:
        """The collection's."""
        ...

    async def routes(self, *, at_least: int = 0) -> Routes:
        """Return the newest routes, of catalog ``at_least`` or later if there is one."""
        ...

    async def read(self, name: RangeId, *, after: int, most: int, wait: float) -> ReadResult:
        """Return records after a sequence: about ``most`` bytes, or what there is.

        With nothing there, wait for so many seconds, where the source can.
        """
        ...

    async def end(self, name: RangeId, *, of_writer: bool = False) -> PartitionBounds:
        """Return where a partition begins and ends; ``of_writer``: as its broker knows."""
        ...

    async def news(
        self, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, PartitionNews]:
        """Return which partitions have come further than these sequences.

        The broker of the first of them is asked for all. With nothing there, wait as ``read``.
        """
        ...

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        """See ``PartitionReader.sequence_before``."""
        ...
