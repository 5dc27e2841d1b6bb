"""An object store that is counted: requests, what they take, and the objects written."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.metrics import MeterProvider

from changefeed.log.brokers.metrics import SECONDS
from changefeed.log.catalog.names import WAL
from changefeed.log.stores.store import Listed, ObjectStore, Versioned
from changefeed.runtime.errors import StoreError

_SIZES = [2**n for n in range(10, 29, 2)]


class MeteredStore:
    """Passes everything on. Objects of rows are flushes, whose size and time are kept."""

    def __init__(
        self,
        store: ObjectStore,
        meters: MeterProvider,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._failing: tuple[float, str] | None = None
        meter = meters.get_meter("changefeed")
        self._requests = meter.create_counter(
            "changefeed.broker.store.requests", "{request}", "Requests to the object store"
        )
        self._failures = meter.create_counter(
            "changefeed.broker.store.failures", "{request}", "Requests that failed"
        )
        self._sizes = meter.create_histogram(
            "changefeed.broker.flush.size",
            "By",
            "Bytes of an object with records",
            explicit_bucket_boundaries_advisory=_SIZES,
        )
        self._times = meter.create_histogram(
            "changefeed.broker.flush.duration",
            "s",
            "What the store took to create one",
            explicit_bucket_boundaries_advisory=SECONDS,
        )

    @property
    def trouble(self) -> tuple[float, str] | None:
        """Since how many seconds nothing has succeeded, and the last error; if it is so."""
        if self._failing is None:
            return None
        since, error = self._failing
        return self._clock() - since, error

    async def create(self, key: str, data: bytes) -> bool:
        began = time.perf_counter()
        with self._counted("create"):
            created = await self._store.create(key, data)
        if key.startswith(WAL):
            self._sizes.record(len(data))
            self._times.record(time.perf_counter() - began)
        return created

    async def put(self, key: str, data: bytes) -> None:
        with self._counted("put"):
            await self._store.put(key, data)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        with self._counted("replace"):
            return await self._store.replace(key, data, version)

    async def newer(self, key: str, version: str) -> Versioned | None:
        with self._counted("get"):
            return await self._store.newer(key, version)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        with self._counted("get"):
            return await self._store.get(key, start, end)

    async def written_at(self, key: str) -> float | None:
        with self._counted("head"):
            return await self._store.written_at(key)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        with self._counted("list"):
            return await self._store.list(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._counted("delete"):
            await self._store.delete(keys)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        self._requests.add(1, {"operation": operation})
        try:
            yield
        except StoreError as error:
            self._failures.add(1, {"operation": operation})
            since = self._clock() if self._failing is None else self._failing[0]
            self._failing = since, str(error)
            raise
        self._failing = None
