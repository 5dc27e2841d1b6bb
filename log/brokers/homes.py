"""Homes of closed partitions: who serves reads of them from its cache.

A closed partition's home is the broker that writes its keys now, so all eras together are as
evenly divided as the newest. Nobody decides or stores that: it follows from the catalog. A
broker that becomes the home of something reads it into its cache. Reads never wait for that:
any broker serves any partition.
"""

from collections.abc import Iterator

from changefeed.feeds.errors import RangeRefused
from changefeed.log.catalog.catalog import Catalog, Collection
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.ranges import Partition, Ranges, ranges_of
from changefeed.log.core_settings import CoreSettings
from changefeed.log.rows.partition_reader import PartitionReader
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


def partitions_to_warm(
    catalog: Catalog, broker: str, since: int
) -> Iterator[tuple[Collection, Partition]]:
    """Yield what a broker became the home of since an era, by collection, the newest first.

    Not what it wrote itself, and what is gone as a whole.
    """
    for collection in catalog.collections:
        ranges = ranges_of(catalog, collection.name)

        def home(x: Partition, era: int, ranges: Ranges = ranges) -> str:
            return next((y.broker for y in ranges.sharing_keys(x, era)), "")

        for era in reversed(ranges.eras[:-1]):
            if era < collection.kept_era:
                break
            for x in reversed(ranges.in_era(era)):
                is_new = x.broker != broker and home(x, since) != broker
                if is_new and home(x, ranges.newest) == broker:
                    yield collection, x


class HomeWarmer:
    """Reads what this broker becomes the home of: at most as much as its cache holds."""

    def __init__(
        self,
        name: str,
        catalogs: CatalogStore,
        partitions: PartitionReader,
        settings: CoreSettings,
    ) -> None:
        self._name = name
        self._catalogs = catalogs
        self._partitions = partitions
        self._settings = settings
        self._warmed = 0

    async def step(self) -> None:
        """Warm the cache once an era has opened; the next era ends that."""
        catalog = self._catalogs.newest
        era = catalog.era
        if era is None or era.state != "open" or era.number == self._warmed:
            return
        await self._catalogs.find_all()
        catalog = self._catalogs.newest
        room = self._settings.cache_bytes
        since = self._warmed or era.number - 1
        assert since < era.number, f"homes of era {era.number} were warmed in era {since}"
        for collection, partition in partitions_to_warm(catalog, self._name, since):
            now = self._catalogs.newest.era
            if now is None or (now.number, now.state) != (era.number, era.state):
                return
            room -= await self._warm(collection.name, partition)
            if room <= 0:
                break
        self._warmed = era.number

    async def _warm(self, name: str, partition: Partition) -> int:
        """Read a partition from its beginning; return the bytes that it took."""
        try:
            there = await self._partitions.extent(name, partition)
            if there.last == there.start:
                return 0
            found = await self._partitions.blocks(
                name, partition.id, there.start, self._settings.warm_bytes
            )
        except RangeRefused as error:  # any broker says so; others are read
            _log.warning("broker.failed", operation="warm a home", error=str(error))
            return 0
        return sum(x.bytes for x in found)
