"""The rows that one process reads, with one cache of objects for all."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from changefeed.feeds.brokers.ahead_reader import AheadReader
from changefeed.feeds.brokers.catalog import Catalog
from changefeed.feeds.brokers.object_cache import ObjectCache
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.brokers.windows import windows_within

_MAX_READERS: Final = 1024
R_co = TypeVar("R_co", bound=RowReader, covariant=True)


class RowReaders(Generic[R_co]):
    """Readers by era and broker, as ``make`` makes them; those asked for last are kept."""

    def __init__(self, cache: ObjectCache, make: Callable[[int, str], R_co]) -> None:
        self.cache = cache
        self._make = make
        self._kept: OrderedDict[tuple[int, str], R_co] = OrderedDict()

    def row(self, catalog: Catalog, era: int, broker: str) -> R_co:
        """Return the reader of a row, which knows of it what the catalog says."""
        reader = self._kept.get((era, broker))
        if reader is None:
            reader = self._kept[era, broker] = self._make(era, broker)
            if len(self._kept) > _MAX_READERS:
                self._kept.popitem(last=False)
        assert len(self._kept) <= _MAX_READERS, f"{len(self._kept)} rows are kept"
        self._kept.move_to_end((era, broker))
        row = catalog.era_numbered(era).row(broker)
        if row is not None:
            reader.learn(row)
        return reader


def row_readers(store: ObjectStore, cluster: str, cache_bytes: int) -> RowReaders[RowReader]:
    cache = ObjectCache(cache_bytes)
    return RowReaders(cache, lambda era, broker: RowReader(store, cluster, era, broker, cache))


def ahead_readers(
    store: ObjectStore, cluster: str, cache_bytes: int, ahead: int
) -> RowReaders[AheadReader]:
    """``ahead``: see ``AheadReader``."""
    cache = ObjectCache(cache_bytes)
    windows = windows_within(cache_bytes)

    def make(era: int, broker: str) -> AheadReader:
        return AheadReader(store, cluster, era, broker, cache, windows=windows, ahead=ahead)

    return RowReaders(cache, make)
