"""Looking at leases in Azure Blob Storage before hosts run on it, or when they cannot."""

from collections.abc import AsyncIterator

from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.blob.store import BlobStore


async def check(store: BlobStore) -> AsyncIterator[Diagnostic]:
    """Yield what is found in the properties of the container."""
    properties = await store.container()
    yield fine("container", f"{properties.name} is there")
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
