"""PostgreSQL among the lease containers: ``postgresql://USER@HOST/DATABASE?fleet=…``."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import ConfigDict, SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic
from changefeed.runtime.secret import HasSecrets
from changefeed.stores.backend import StoreBackend
from changefeed.stores.postgres import diagnostics, opening
from changefeed.stores.postgres.connection import PostgresAccess
from changefeed.stores.store import Store


class PostgresSettings(HasSecrets):
    """``[backends.postgres]``: better set in the environment than written into a file."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    password: SecretStr | None = None
    password_file: Path | None = None
    """A file that holds the password, as Kubernetes and Docker mount secrets."""

    @property
    def access(self) -> PostgresAccess:
        return PostgresAccess(password=self.secret_of("password"))


def _access(options: OpenOptions) -> PostgresAccess:
    settings = options.settings
    return settings.access if isinstance(settings, PostgresSettings) else PostgresAccess()


def _store(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return opening.open_store(at.place, _access(options), create=options.create)


async def _check(
    address: Address, options: OpenOptions, *, feed: str
) -> AsyncIterator[Diagnostic]:
    del feed  # any feed's leases may be here
    async for found in diagnostics.check(address.place, _access(options)):
        yield found


BACKEND = StoreBackend(
    name="postgres",
    place="//USER@HOST/DATABASE",
    open_store=_store,
    check=_check,
    settings=PostgresSettings,
    locating=("fleet", "schema", "host", "port", "dbname", "database"),
)
