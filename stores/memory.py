"""Records in memory: for one process, and for tests and simulations of many hosts.

No test double: it keeps the whole contract. No call ever waits, so each is one step
of the event loop, and the same calls in the same order give the same versions.
"""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count

from msgspec.structs import replace

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.backend import StoreBackend
from changefeed.stores.store import WHOLE, Listed, Record, Store, written_over


class MemoryStore(Store):
    """Records of one process; they end with it."""

    def __init__(self) -> None:
        self._versions = count(1)
        self._records: dict[tuple[str, str], Record] = {}

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        assert put is None or put.kind in kinds, f"{put} would not be listed"
        written = None if put is None else await self.put(put)
        here = [x for x in self._records.values() if x.kind in kinds]
        newest = max((int(x.version) for x in here), default=0)
        after = int(since or 0)
        return Listed(
            records=[replace(x, position=None) for x in here if int(x.version) > after],
            total=len(here),
            token=str(max(newest, after)),
            put=written,
        )

    async def get(self, kind: str, key: str) -> Record | None:
        return self._records.get((kind, key))

    async def put(self, record: Record) -> Record | None:
        place = record.kind, record.key
        stored = self._records.get(place)
        wanted = written_over(stored, record)
        if wanted is None:
            return None
        version = str(next(self._versions))
        assert stored is None or int(version) > int(stored.version), (
            f"{place}: version {version} after {stored.version}"
        )
        self._records[place] = replace(wanted, version=version)
        return self._records[place]

    async def delete(self, kind: str, key: str, version: str) -> bool:
        stored = self._records.get((kind, key))
        if stored is None or stored.version != version:
            return False
        del self._records[kind, key]
        return True


def _open(_: Address, options: OpenOptions) -> AbstractAsyncContextManager[MemoryStore]:
    if options.must_exist or options.only_look or options.keeps_changes:
        raise StoreRefused(
            "what is kept in memory: is seen by its process alone, and gone when that ends: "
            "look at that process's own page, or use sqlite:PATH"
        )
    return nullcontext(MemoryStore())


BACKEND = StoreBackend(name="memory", place="", open_store=_open)
