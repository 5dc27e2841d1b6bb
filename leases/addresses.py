"""Lease containers by address: leases over the store that is there, as it keeps them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from changefeed.feeds.backend import OpenOptions, prepared
from changefeed.leases.container import LeaseContainer
from changefeed.leases.stored import StoredCheckpoints, StoredLeases, StoredOwnership
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.diagnostics import Diagnostic, failed
from changefeed.runtime.errors import StoreError, StoreMissing, StoreRefused
from changefeed.stores.addresses import STORES, open_store, without_secrets
from changefeed.stores.rights import check_rights
from changefeed.stores.store import Store


def open_container(
    address: str, options: OpenOptions | None = None
) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open a container that keeps ownership and checkpoints at one address.

    Without ``options``, secrets and the settings of backends are taken from the
    environment. Raise ``StoreRefused`` for an address that cannot be one.
    """
    backend, where, own = prepared(STORES, address, options)
    if backend.name == "cosmos":
        # In the documents of .NET's processor; who has no such leases does not load all that.
        from changefeed.leases.cosmos.opening import open_leases  # noqa: PLC0415

        return open_leases(where, own)
    opening, named = backend.open_store(where, own), without_secrets(address)
    return _stored(opening, named, apart=backend.apart)


@asynccontextmanager
async def _stored(
    opening: AbstractAsyncContextManager[Store], named: str, *, apart: bool
) -> AsyncIterator[LeaseContainer]:
    async with opening as store:
        if apart:
            yield TwoStoreLeases(
                StoredOwnership(store, where=named), StoredCheckpoints(store, where=named)
            )
        else:
            yield StoredLeases(store, where=named)


@asynccontextmanager
async def open_stores(
    ownership_address: str, checkpoints_address: str, options: OpenOptions | None = None
) -> AsyncIterator[LeaseContainer]:
    """Open a container that keeps them apart. Both may be the same file or container.

    Raise ``StoreRefused`` where one is in memory: it would be gone when the other is not.
    """
    if "memory" in {STORES.find(x)[0].name for x in (ownership_address, checkpoints_address)}:
        raise StoreRefused(
            "ownership and checkpoints are both in memory or neither: set leases.address to "
            "memory: and no leases.checkpoints, or give both another place"
        )
    async with (
        open_store(ownership_address, options) as ownership,
        open_store(checkpoints_address, options) as checkpoints,
    ):
        yield TwoStoreLeases(
            StoredOwnership(ownership, where=without_secrets(ownership_address)),
            StoredCheckpoints(checkpoints, where=without_secrets(checkpoints_address)),
        )


async def check_leases(
    address: str, options: OpenOptions | None = None, *, feed: str
) -> AsyncIterator[Diagnostic]:
    """Yield what the backend of leases finds, until something is so wrong that no more can
    be seen. It writes one record of its own and deletes it again, to see whether it may.
    ``feed`` is the address of their feed. Raise ``StoreMissing`` if no container is there.
    """
    try:
        backend, where, own = prepared(STORES, address, options)
        if backend.name == "cosmos":
            from changefeed.leases.cosmos import diagnostics  # noqa: PLC0415 - as above

            async for found in diagnostics.check(where, own, feed=feed):
                yield found
            return
        own = replace(own, create=False, must_exist=True)
        async with backend.open_store(where, own) as store:
            if backend.check is not None:
                async for found in backend.check(store):
                    yield found
            yield await check_rights(store)
    except StoreMissing:
        raise
    except StoreError as error:
        yield failed("leases", error)
