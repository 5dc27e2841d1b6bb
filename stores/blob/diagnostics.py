"""Looking at leases in Azure Blob Storage before hosts run on it, or when they cannot."""

from collections.abc import AsyncIterator

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.blob.address import read_address
from changefeed.stores.blob.connection import connect
from changefeed.stores.blob.errors import translate_errors
from changefeed.stores.blob.store import BlobStore
from changefeed.stores.rights import check_rights


async def check(at: Address, options: OpenOptions) -> AsyncIterator[Diagnostic]:
    """Yield what is found. Raise as containers do where no more can be seen.

    It writes one blob of its own and deletes it again, to see whether it may.
    """
    address = read_address(at.scheme, at.place)
    async with connect(address, options) as client:
        with translate_errors(str(address)):
            properties = await client.get_container_properties()
        yield fine("container", f"{address.container} is there")
        if properties.has_immutability_policy or properties.has_legal_hold:
            yield problem(
                "immutability",
                "the container keeps what was written (WORM): no lease can be renewed",
                "use a container without an immutability policy or legal hold",
            )
        if properties.public_access:
            yield warning(
                "access",
                "the container is open to the public: anybody can read where hosts are",
                "switch public access off",
            )
        yield await check_rights(BlobStore(client, address))
