"""From an address to leases in the documents of .NET's processor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAddress
from changefeed.leases.cosmos.changes import LeaseChanges
from changefeed.leases.cosmos.container import CosmosLeases
from changefeed.leases.cosmos.documents import FULL_FIDELITY, INCREMENTAL, Form
from changefeed.runtime.backends import Address
from changefeed.stores.cosmos.opening import MODES, Opened, open_container_at

_IN_DOCUMENTS = dict(zip(MODES, (INCREMENTAL, FULL_FIDELITY), strict=True))


@asynccontextmanager
async def open_leases(at: Address, options: OpenOptions) -> AsyncIterator[CosmosLeases]:
    """Open them. With ``options.only_look``, leases that cannot be shared are shown."""
    opening = open_container_at(at.scheme, at.place, options.cosmos, create=options.create)
    async with opening as opened:
        yield CosmosLeases(
            opened.items,
            form_of(opened),
            only_look=options.only_look,
            changes=LeaseChanges(opened.proxy, str(opened.address), opened.properties),
        )


def form_of(opened: Opened) -> Form:
    """Return how the documents in a container look."""
    return Form(
        names=opened.names,
        partitioned_by_id=opened.items.partitioned_by_id,
        mode=mode_of(opened.address),
    )


def mode_of(address: CosmosAddress) -> str:
    """Return the mode of leases at an address, as documents call it."""
    return _IN_DOCUMENTS[address.options.get("mode", MODES[0])]
