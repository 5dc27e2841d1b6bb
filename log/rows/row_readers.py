"""The rows that one process reads, with one cache of objects for all."""

from functools import partial
from typing import Final

from changefeed.log.catalog.catalog import Catalog
from changefeed.log.format.flush import TABLE_EVERY
from changefeed.log.rows.object_cache import Cache, ObjectCache
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.stores.store import ObjectStore

_MAX_READERS: Final = 1024
_AHEAD: Final = 16
"""Headers that are read at once, where each is a request."""


class RowReaders:
    """Readers by era and broker; those asked for last are kept.

    ``ahead`` and ``whole``: see ``RowReader``. Without ``ahead`` tables begin windows.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        cache_bytes: int,
        *,
        ahead: int | None = None,
        whole: bool = False,
    ) -> None:
        self.cache = ObjectCache(cache_bytes)
        ahead = min(_AHEAD, TABLE_EVERY) if ahead is None else ahead
        self._reader_of = partial(
            RowReader, store, cluster, cache=self.cache, ahead=ahead, whole=whole
        )
        self._kept = Cache[tuple[int, str], RowReader](_MAX_READERS, lambda _: 1)

    def row(self, catalog: Catalog, era: int, broker: str) -> RowReader:
        """Return the reader of a row, which knows of it what the catalog says."""
        reader = self._kept.use((era, broker))
        if reader is None:
            reader = self._reader_of(era, broker)
            self._kept.add((era, broker), reader)
        row = catalog.era_numbered(era).row(broker)
        if row is not None:
            reader.learn(row)
        return reader
