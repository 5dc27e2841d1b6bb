"""From an address, or from a container of a client that is open, to leases in the documents of
.NET's processor.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import Mode
from changefeed.feeds.cosmos.client import Container, require_async
from changefeed.leases.cosmos.changes import LeaseChanges
from changefeed.leases.cosmos.container import CosmosLeases
from changefeed.leases.cosmos.documents import FULL_FIDELITY, INCREMENTAL
from changefeed.runtime.backends import Address
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.errors import OF_STORES
from changefeed.stores.cosmos.items import Items
from changefeed.stores.cosmos.opening import (
    lease_address,
    open_container_at,
    prefix_of_processor,
    refuse_for_ids,
)

IN_DOCUMENTS: Final[Mapping[Mode, str]] = {
    "latest-version": INCREMENTAL,
    "all-versions": FULL_FIDELITY,
}
"""What documents of leases call a mode."""


@asynccontextmanager
async def open_leases(at: Address, options: OpenOptions) -> AsyncIterator[CosmosLeases]:
    """Open them. With ``options.only_look``, leases that cannot be shared are shown."""
    mode = lease_address(at.scheme, at.place).mode
    opening = open_container_at(at.scheme, at.place, options.cosmos, create=options.create)
    async with opening as (container, names):
        yield _leases_in(container, names, mode, only_look=options.only_look)


@asynccontextmanager
async def leases_over(
    container: ContainerProxy, *, feed: ContainerProxy, processor: str, mode: Mode
) -> AsyncIterator[CosmosLeases]:
    """Open the leases of a processor over a feed, both as an open client has them, which
    stays the caller's.

    Raise ``StoreRefused`` if the container cannot be used, and ``StoreUnavailable``.
    """
    refuse_for_ids("processor_name", processor)
    with OF_STORES.errors("the container of leases"):
        require_async(container)
    async with Container.opened(container, OF_STORES) as opened:
        with OF_STORES.errors(opened.where):
            prefix = await prefix_of_processor(processor, feed, container)
        yield _leases_in(opened, DocumentIds(prefix), mode)


def _leases_in(
    container: Container, names: DocumentIds, mode: Mode, *, only_look: bool = False
) -> CosmosLeases:
    return CosmosLeases(
        Items(container),
        names,
        mode=IN_DOCUMENTS[mode],
        only_look=only_look,
        changes=LeaseChanges(container),
    )
