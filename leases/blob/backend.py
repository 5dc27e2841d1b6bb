"""Azure Blob Storage among the lease containers: ``blob://ACCOUNT/CONTAINER/PREFIX``."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import ConfigDict, SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.blob import diagnostics, opening
from changefeed.leases.blob.address import BlobAccess
from changefeed.leases.container import LeaseContainer
from changefeed.leases.stores import CheckpointStore, OwnershipStore
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic
from changefeed.runtime.secret import HasSecrets


class BlobSettings(HasSecrets):
    """``[backends.blob]``: better set in the environment than written into a file."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    key: SecretStr | None = None
    """A key of the storage account, or a shared access signature."""
    connection_string: SecretStr | None = None
    """May say where the account is, for addresses like ``blob:///CONTAINER/PREFIX``."""
    key_file: Path | None = None
    """A file that holds the key, as Kubernetes and Docker mount secrets."""
    connection_string_file: Path | None = None
    """A file that holds the connection string."""

    @property
    def access(self) -> BlobAccess:
        return BlobAccess(
            key=self.secret_of("key"), connection_string=self.secret_of("connection_string")
        )


def _access(options: OpenOptions) -> BlobAccess:
    settings = options.settings
    return settings.access if isinstance(settings, BlobSettings) else BlobAccess()


def _container(
    at: Address, options: OpenOptions
) -> AbstractAsyncContextManager[LeaseContainer]:
    return opening.open_leases(at.scheme, at.place, _access(options), create=options.create)


def _ownership(
    at: Address, options: OpenOptions
) -> AbstractAsyncContextManager[OwnershipStore]:
    return opening.open_ownership(at.scheme, at.place, _access(options), create=options.create)


def _checkpoints(
    at: Address, options: OpenOptions
) -> AbstractAsyncContextManager[CheckpointStore]:
    return opening.open_checkpoints(
        at.scheme, at.place, _access(options), create=options.create
    )


async def _check(
    address: Address, options: OpenOptions, *, feed: str
) -> AsyncIterator[Diagnostic]:
    del feed  # any feed's leases may be here
    async for found in diagnostics.check(address.scheme, address.place, _access(options)):
        yield found


BACKEND = LeaseBackend(
    name="blob",
    place="//ACCOUNT/CONTAINER/PREFIX",
    open_container=_container,
    open_ownership=_ownership,
    open_checkpoints=_checkpoints,
    check=_check,
    settings=BlobSettings,
)
