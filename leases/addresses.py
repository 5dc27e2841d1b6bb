"""Lease containers by address, as settings and command lines name them.

``sqlite:PATH`` is a file, ``cosmos://HOST/DATABASE/CONTAINER`` a container of Cosmos DB
(see ``changefeed.leases.cosmos.opening`` for its options). A new kind of container is one
more line in a table below. A kind is imported when it is first asked for.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.leases.container import LeaseContainer
from changefeed.leases.diagnostics import Finding
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.sqlite import SqliteCheckpoints, SqliteLeases, SqliteOwnership
from changefeed.leases.stores import CheckpointStore, OwnershipStore, SeparateStores

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """What opening may need beside the address: secrets, and leave to create.

    ``cosmos`` is taken from the environment if it is not given. SQLite files are created
    in any case.
    """

    cosmos: CosmosAccess | None = None
    create: bool = False


Opener = Callable[[str, OpenOptions], AbstractAsyncContextManager[Kept]]


@dataclass(frozen=True, slots=True)
class Kind(Generic[Kept]):
    """One kind of container; ``place`` shows what follows its name in an address."""

    place: str
    open: Opener[Kept]


def _cosmos_leases(
    scheme: str, place: str, means: OpenOptions
) -> AbstractAsyncContextManager[LeaseContainer]:
    from changefeed.leases import cosmos  # noqa: PLC0415 - only for those who use it

    return cosmos.open_leases(scheme, place, _access(means), create=means.create)


def _cosmos_ownership(
    scheme: str, place: str, means: OpenOptions
) -> AbstractAsyncContextManager[OwnershipStore]:
    from changefeed.leases import cosmos  # noqa: PLC0415 - only for those who use it

    return cosmos.open_ownership(scheme, place, _access(means), create=means.create)


def _cosmos_checkpoints(
    scheme: str, place: str, means: OpenOptions
) -> AbstractAsyncContextManager[CheckpointStore]:
    from changefeed.leases import cosmos  # noqa: PLC0415 - only for those who use it

    return cosmos.open_checkpoints(scheme, place, _access(means), create=means.create)


def _access(means: OpenOptions) -> CosmosAccess:
    return means.cosmos or CosmosAccess.of(os.environ)


_FILE = "PATH"
_COSMOS = "//HOST/DATABASE/CONTAINER"
_CONTAINERS: Mapping[str, Kind[LeaseContainer]] = {
    "sqlite": Kind(_FILE, lambda place, _: SqliteLeases(place)),
    "cosmos": Kind(_COSMOS, partial(_cosmos_leases, "cosmos")),
    "cosmos+http": Kind(_COSMOS, partial(_cosmos_leases, "cosmos+http")),
}
_OWNERSHIP: Mapping[str, Kind[OwnershipStore]] = {
    "sqlite": Kind(_FILE, lambda place, _: SqliteOwnership(place)),
    "cosmos": Kind(_COSMOS, partial(_cosmos_ownership, "cosmos")),
    "cosmos+http": Kind(_COSMOS, partial(_cosmos_ownership, "cosmos+http")),
}
_CHECKPOINTS: Mapping[str, Kind[CheckpointStore]] = {
    "sqlite": Kind(_FILE, lambda place, _: SqliteCheckpoints(place)),
    "cosmos": Kind(_COSMOS, partial(_cosmos_checkpoints, "cosmos")),
    "cosmos+http": Kind(_COSMOS, partial(_cosmos_checkpoints, "cosmos+http")),
}


def open_container(
    address: str, means: OpenOptions | None = None
) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open a container that keeps ownership and checkpoints together.

    Raise ``ContainerRefused`` for an address that cannot be one.
    """
    return _opened(address, _CONTAINERS, means or OpenOptions())


@asynccontextmanager
async def open_stores(
    ownership_address: str, checkpoints_address: str, means: OpenOptions | None = None
) -> AsyncIterator[LeaseContainer]:
    """Open a container that keeps them apart. Both may be the same file or container."""
    means = means or OpenOptions()
    async with (
        _opened(ownership_address, _OWNERSHIP, means) as ownership,
        _opened(checkpoints_address, _CHECKPOINTS, means) as checkpoints,
    ):
        yield SeparateStores(ownership, checkpoints)


async def check_cosmos(address: str, means: OpenOptions) -> AsyncIterator[Finding]:
    """Look at a container of Cosmos DB, and say what is wrong with it for leases."""
    from changefeed.leases.cosmos.diagnostics import check  # noqa: PLC0415 - only for those who use it

    scheme, _, place = address.partition(":")
    async for found in check(scheme, place, _access(means)):
        yield found


def _opened(
    address: str, kinds: Mapping[str, Kind[Kept]], means: OpenOptions
) -> AbstractAsyncContextManager[Kept]:
    scheme, colon, place = address.partition(":")
    known = ", ".join(f"{name}:…" for name in kinds)
    if scheme == "memory":
        raise ContainerRefused(
            "leases in memory are seen by one process only, and forgotten when it ends: use"
            f" one of {known}, or make MemoryLeases() in a program that runs all its hosts"
        )
    if not colon or scheme not in kinds:
        raise ContainerRefused(f"{address!r} is no address of leases; there are: {known}")
    kind = kinds[scheme]
    if not place:
        raise ContainerRefused(f"{address!r} does not say where: {scheme}:{kind.place}")
    return kind.open(place, means)
