"""Lease containers by address, as settings and command lines name them.

``sqlite:PATH`` is a file. A new kind of container is one more line in a table below.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from .container import LeaseContainer
from .errors import ContainerRefused
from .sqlite import SqliteCheckpoints, SqliteLeases, SqliteOwnership
from .stores import CheckpointStore, OwnershipStore, SeparateStores

Kept = TypeVar("Kept")
Openers = Mapping[str, Callable[[str], AbstractAsyncContextManager[Kept]]]

_CONTAINERS: Openers[LeaseContainer] = {"sqlite": SqliteLeases}
_OWNERSHIP: Openers[OwnershipStore] = {"sqlite": SqliteOwnership}
_CHECKPOINTS: Openers[CheckpointStore] = {"sqlite": SqliteCheckpoints}


def open_container(address: str) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open a container that keeps ownership and checkpoints together.

    Raise ``ContainerRefused`` for an address that cannot be one.
    """
    return _opener(address, _CONTAINERS)


@asynccontextmanager
async def open_stores(
    ownership_address: str, checkpoints_address: str
) -> AsyncIterator[LeaseContainer]:
    """Open a container that keeps them apart. Both may be the same file."""
    async with (
        _opener(ownership_address, _OWNERSHIP) as ownership,
        _opener(checkpoints_address, _CHECKPOINTS) as checkpoints,
    ):
        yield SeparateStores(ownership, checkpoints)


def _opener(address: str, openers: Openers[Kept]) -> AbstractAsyncContextManager[Kept]:
    scheme, colon, place = address.partition(":")
    known = ", ".join(f"{name}:…" for name in openers)
    if scheme == "memory":
        raise ContainerRefused(
            "leases in memory are seen by one process only, and forgotten when it ends: use"
            f" one of {known}, or make MemoryLeases() in a program that runs all its hosts"
        )
    if not colon or scheme not in openers:
        raise ContainerRefused(f"{address!r} is no address of leases; there are: {known}")
    if not place:
        raise ContainerRefused(f"{address!r} does not say where: {scheme}:PATH")
    return openers[scheme](place)
