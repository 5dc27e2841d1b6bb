"""Lease containers by address, as settings and command lines name them.

``sqlite:PATH`` is a file, ``cosmos://HOST/DATABASE/CONTAINER`` a container of Cosmos DB
(see ``changefeed.leases.cosmos.opening`` for its options); ``postgresql://HOST/DATABASE``,
``redis://HOST`` and ``blob://ACCOUNT/CONTAINER`` are what they say. Other packages add theirs
by the entry point ``changefeed.leases``; see ``changefeed.leases.backend``.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.container import LeaseContainer
from changefeed.leases.separate_stores import SeparateStores
from changefeed.leases.store import Store
from changefeed.leases.stored import StoredCheckpoints, StoredLeases, StoredOwnership
from changefeed.runtime.address_options import read_options, write_options
from changefeed.runtime.backends import Address, BackendTable, BuiltIn, own_settings
from changefeed.runtime.diagnostics import Diagnostic, problem
from changefeed.runtime.errors import StoreError, StoreMissing, StoreRefused, StoreUnavailable

__all__ = [
    "LEASES",
    "OpenOptions",
    "check_leases",
    "lease_place",
    "open_container",
    "open_store",
    "open_stores",
    "without_secrets",
]

_COSMOS = BuiltIn(target="changefeed.leases.cosmos.backend:BACKEND")
_POSTGRES = BuiltIn(
    target="changefeed.leases.postgres.backend:BACKEND", package="asyncpg", extra="postgres"
)
_REDIS = BuiltIn(
    target="changefeed.leases.redis.backend:BACKEND", package="redis", extra="redis"
)
_BLOB = BuiltIn(
    target="changefeed.leases.blob.backend:BACKEND", package="azure.storage", extra="blob"
)

LEASES = BackendTable(
    LeaseBackend,
    what="leases",
    group="changefeed.leases",
    built_in={
        "sqlite": BuiltIn(target="changefeed.leases.sqlite.backend:BACKEND"),
        "cosmos": _COSMOS,
        "cosmos+http": _COSMOS,
        "postgresql": _POSTGRES,
        "redis": _REDIS,
        "rediss": _REDIS,
        "blob": _BLOB,
        "blob+http": _BLOB,
        "memory": BuiltIn(target="changefeed.leases.memory:BACKEND", listed=False),
    },
    refuse=StoreRefused,
)


def open_container(
    address: str, options: OpenOptions | None = None
) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open a container that keeps ownership and checkpoints together.

    Without ``options``, secrets and the settings of backends are taken from the
    environment. Raise ``StoreRefused`` for an address that cannot be one.
    """
    backend, where, own = _prepared(address, options)
    if backend.open_container is not None:
        return backend.open_container(where, own)
    return _stored(backend.open_store(where, own), without_secrets(address))


def open_store(
    address: str, options: OpenOptions | None = None
) -> AbstractAsyncContextManager[Store]:
    """Open the records at an address of leases, whatever they are of; as ``open_container``."""
    backend, where, own = _prepared(address, options)
    return backend.open_store(where, own)


@asynccontextmanager
async def _stored(
    opening: AbstractAsyncContextManager[Store], where: str
) -> AsyncIterator[LeaseContainer]:
    async with opening as store:
        yield StoredLeases(store, where=where)


@asynccontextmanager
async def open_stores(
    ownership_address: str, checkpoints_address: str, options: OpenOptions | None = None
) -> AsyncIterator[LeaseContainer]:
    """Open a container that keeps them apart. Both may be the same file or container."""
    of_ownership, place, ownership_options = _prepared(ownership_address, options)
    of_checkpoints, checkpoints_place, checkpoint_options = _prepared(
        checkpoints_address, options
    )
    async with (
        of_ownership.open_store(place, ownership_options) as ownership,
        of_checkpoints.open_store(checkpoints_place, checkpoint_options) as checkpoints,
    ):
        yield SeparateStores(
            StoredOwnership(ownership, where=without_secrets(ownership_address)),
            StoredCheckpoints(checkpoints, where=without_secrets(checkpoints_address)),
        )


async def check_leases(
    address: str, options: OpenOptions | None = None, *, feed: str
) -> AsyncIterator[Diagnostic]:
    """Yield what the backend of leases finds, until something is so wrong that no more can
    be seen. ``feed`` is the address of their feed. Raise ``StoreMissing`` where there is
    no such container.
    """
    try:
        backend, where, own = _prepared(address, options)
        if backend.check is not None:
            async for found in backend.check(where, own, feed=feed):
                yield found
    except StoreMissing:
        raise
    except StoreUnavailable as error:
        yield problem("leases", str(error), "look at the network and at the address")
    except StoreError as error:
        yield problem("leases", str(error))


def lease_place(address: str) -> str:
    """Return where the leases at an address are: what all hosts of a fleet have in common.

    That is the address without its user, and without options that only say how it is reached.
    """
    backend, where = LEASES.find(address)
    place, _, query = backend.absolute(where.place).partition("?")
    if place.startswith("//"):
        server, slash, path = place.removeprefix("//").partition("/")
        place = f"//{server.rpartition('@')[2]}{slash}{path}"
    if backend.locating is not None:
        options = read_options(query)
        query = write_options({x: options[x] for x in sorted(options) if x in backend.locating})
    return without_secrets(f"{where.scheme}:{place}{query and '?'}{query}")


def without_secrets(address: str) -> str:
    """Return an address as it may be printed: without the password of a user."""
    shown = re.sub(r"//([^/@:]*):[^/]*@", r"//\1:…@", address)
    return re.sub(r"([?&](?:ssl_)?password=)[^&]*", r"\1…", shown)


def _prepared(
    address: str, options: OpenOptions | None
) -> tuple[LeaseBackend, Address, OpenOptions]:
    backend, where = LEASES.find(address)
    options = options or OpenOptions()
    return backend, where, replace(options, settings=own_settings(backend, options.backends))
