"""An object store that is counted: requests, what they take, and the objects written."""

import time
from collections.abc import Sequence

from opentelemetry.metrics import MeterProvider

from changefeed.feeds.brokers.stores.store import Listed, ObjectStore, StoreError

_ROWS = "wal/"


class MeteredStore:
    """Passes everything on. Objects of rows are flushes, whose size and time are kept."""

    def __init__(self, store: ObjectStore, meters: MeterProvider) -> None:
        self._store = store
        meter = meters.get_meter("changefeed")
        self._requests = meter.create_counter(
            "changefeed.broker.store.requests", "{request}", "Requests to the object store"
        )
        self._failures = meter.create_counter(
            "changefeed.broker.store.failures", "{request}", "Requests that failed"
        )
        self._sizes = meter.create_histogram(
            "changefeed.broker.flush.size", "By", "Bytes of an object with records"
        )
        self._times = meter.create_histogram(
            "changefeed.broker.flush.duration", "s", "What the store took to create one"
        )

    async def create(self, key: str, data: bytes) -> bool:
        began = time.perf_counter()
        self._requests.add(1, {"operation": "create"})
        try:
            created = await self._store.create(key, data)
        except StoreError:
            self._failures.add(1, {"operation": "create"})
            raise
        if key.startswith(_ROWS):
            self._sizes.record(len(data))
            self._times.record(time.perf_counter() - began)
        return created

    async def put(self, key: str, data: bytes) -> None:
        self._requests.add(1, {"operation": "put"})
        try:
            await self._store.put(key, data)
        except StoreError:
            self._failures.add(1, {"operation": "put"})
            raise

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        self._requests.add(1, {"operation": "get"})
        try:
            return await self._store.get(key, start, end)
        except StoreError:
            self._failures.add(1, {"operation": "get"})
            raise

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        self._requests.add(1, {"operation": "list"})
        try:
            return await self._store.list(prefix, after)
        except StoreError:
            self._failures.add(1, {"operation": "list"})
            raise

    async def delete(self, keys: Sequence[str]) -> None:
        self._requests.add(1, {"operation": "delete"})
        try:
            await self._store.delete(keys)
        except StoreError:
            self._failures.add(1, {"operation": "delete"})
            raise
