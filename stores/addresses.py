"""Stores by address, as settings and command lines name them.

``sqlite:PATH`` is a file, ``cosmos://HOST/DATABASE/CONTAINER`` a container of Cosmos DB
(see ``changefeed.stores.cosmos.opening`` for its options); ``postgresql://HOST/DATABASE``,
``redis://HOST`` and ``blob://ACCOUNT/CONTAINER`` are what they say. Other packages add theirs
by the entry point ``changefeed.stores``; see ``changefeed.stores.backend``.
"""

import re
from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import OpenOptions, prepared
from changefeed.runtime.address_options import read_options, write_options
from changefeed.runtime.backends import BackendTable, BuiltIn
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.backend import StoreBackend
from changefeed.stores.store import Store

_COSMOS = BuiltIn(target="changefeed.stores.cosmos.opening:BACKEND")
_POSTGRES = BuiltIn(
    target="changefeed.stores.postgres.backend:BACKEND", package="asyncpg", extra="postgres"
)
_REDIS = BuiltIn(
    target="changefeed.stores.redis.backend:BACKEND", package="redis", extra="redis"
)
_BLOB = BuiltIn(
    target="changefeed.stores.blob.backend:BACKEND", package="azure.storage", extra="blob"
)

STORES = BackendTable(
    StoreBackend,
    what="leases",
    group="changefeed.stores",
    built_in={
        "sqlite": BuiltIn(target="changefeed.stores.sqlite.backend:BACKEND"),
        "cosmos": _COSMOS,
        "cosmos+http": _COSMOS,
        "postgresql": _POSTGRES,
        "redis": _REDIS,
        "rediss": _REDIS,
        "blob": _BLOB,
        "blob+http": _BLOB,
        "memory": BuiltIn(target="changefeed.stores.memory:BACKEND"),
    },
    refuse=StoreRefused,
)


def open_store(
    address: str, options: OpenOptions | None = None
) -> AbstractAsyncContextManager[Store]:
    """Open the records at an address, whatever they are of.

    Without ``options``, secrets and the settings of backends are taken from the
    environment. Raise ``StoreRefused`` for an address that cannot be one.
    """
    backend, where, own = prepared(STORES, address, options)
    return backend.open_store(where, own)


def shared_place(address: str) -> str:
    """Return where the records at an address are: what all hosts of a fleet have in common.

    That is the address without its user, and without options that only say how it is reached.
    """
    backend, where = STORES.find(address)
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
