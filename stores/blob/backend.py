"""Azure Blob Storage among the lease containers: ``blob://ACCOUNT/CONTAINER/PREFIX``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import ConfigDict, SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic
from changefeed.runtime.secret import HasSecrets
from changefeed.stores.backend import StoreBackend
from changefeed.stores.blob.address import BlobAccess, read_address
from changefeed.stores.blob.connection import connect, create_container
from changefeed.stores.blob.diagnostics import check
from changefeed.stores.blob.errors import translate_errors
from changefeed.stores.blob.store import BlobStore


class BlobSettings(HasSecrets):
    """``[backends.blob]``: better set in the environment than written into a file."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    key: SecretStr | None = None
    """A key of the storage account, or a shared access signature."""
    connection_string: SecretStr | None = None
    """May say where the account is, for addresses like ``blob:///CONTAINER/PREFIX``."""

    @property
    def access(self) -> BlobAccess:
        return BlobAccess(
            key=self.secret_of("key"), connection_string=self.secret_of("connection_string")
        )


def access_of(options: OpenOptions) -> BlobAccess:
    settings = options.settings
    return settings.access if isinstance(settings, BlobSettings) else BlobAccess()


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[BlobStore]:
    address = read_address(at.scheme, at.place)
    async with connect(address, access_of(options)) as client:
        if options.create:
            await create_container(client, address)
        with translate_errors(str(address)):
            await client.get_container_properties()
        yield BlobStore(client, address)


def _check(at: Address, options: OpenOptions) -> AsyncIterator[Diagnostic]:
    return check(read_address(at.scheme, at.place), access_of(options))


BACKEND = StoreBackend(
    name="blob",
    place="//ACCOUNT/CONTAINER/PREFIX",
    open_store=_open,
    check=_check,
    settings=BlobSettings,
    apart=True,  # as the Event Hubs SDKs have them
)
