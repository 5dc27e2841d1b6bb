"""Fresh, empty lease containers over the servers of ``tests.support.servers``."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from changefeed.leases.blob import opening as blob
from changefeed.leases.blob.address import BlobAccess
from changefeed.leases.container import LeaseContainer
from changefeed.leases.postgres import opening as postgres
from changefeed.leases.redis import opening as redis
from changefeed.leases.separate_stores import SeparateStores
from changefeed.leases.sqlite import SqliteCheckpoints, SqliteOwnership
from tests.support import servers
from tests.support.lease_containers import Connect, Harness

Half = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes one more client to the same half of a container."""


class Place:
    """Where one test keeps its leases: names of its own on servers that all share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = f"fleet-{uuid.uuid4().hex[:12]}"

    def postgres(self) -> str:
        return f"{servers.postgres().url}?fleet={self.name}".removeprefix("postgresql:")

    def redis(self) -> str:
        return f"{servers.redis().url}?fleet={self.name}".removeprefix("redis:")

    def blob(self) -> tuple[str, str, BlobAccess]:
        server = servers.azurite()
        place = f"{server.endpoint.removeprefix('http:')}/leases/{self.name}/hub/group"
        return "blob+http", place, BlobAccess(key=server.key)

    # The containers and their halves

    def postgres_leases(self) -> Any:
        return postgres.open_leases(self.postgres(), create=True)

    def postgres_ownership(self) -> Any:
        return postgres.open_ownership(self.postgres(), create=True)

    def postgres_checkpoints(self) -> Any:
        return postgres.open_checkpoints(self.postgres(), create=True)

    def redis_leases(self) -> Any:
        return redis.open_leases("redis", self.redis())

    def redis_ownership(self) -> Any:
        return redis.open_ownership("redis", self.redis())

    def redis_checkpoints(self) -> Any:
        return redis.open_checkpoints("redis", self.redis())

    def blob_leases(self) -> Any:
        return blob.open_leases(*self.blob(), create=True)

    def blob_ownership(self) -> Any:
        return blob.open_ownership(*self.blob(), create=True)

    def blob_checkpoints(self) -> Any:
        return blob.open_checkpoints(*self.blob(), create=True)

    def sqlite_ownership(self) -> Any:
        return SqliteOwnership(self.directory / "ownership.db")

    def sqlite_checkpoints(self) -> Any:
        return SqliteCheckpoints(self.directory / "checkpoints.db")


def combined(kind: str) -> Harness:
    """One container for both, e.g. ``postgres``."""
    return _harness(lambda place: getattr(place, f"{kind}_leases")())


def apart(ownership: str, checkpoints: str) -> Harness:
    """Ownership in one store, checkpoints in another."""

    @asynccontextmanager
    async def both(place: Place) -> AsyncIterator[LeaseContainer]:
        async with (
            getattr(place, f"{ownership}_ownership")() as owned,
            getattr(place, f"{checkpoints}_checkpoints")() as reached,
        ):
            yield SeparateStores(owned, reached)

    return _harness(both)


def _harness(
    make: Callable[[Place], AbstractAsyncContextManager[LeaseContainer]],
) -> Harness:
    @asynccontextmanager
    async def harness(directory: Path) -> AsyncIterator[Connect]:
        place = Place(directory)
        async with AsyncExitStack() as clients:

            async def connect() -> LeaseContainer:
                try:
                    return await clients.enter_async_context(make(place))
                except servers.Missing as missing:
                    pytest.skip(str(missing))

            yield connect

    return harness
