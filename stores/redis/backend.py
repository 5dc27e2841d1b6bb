"""Redis among the lease containers: ``redis://HOST:PORT/DB?fleet=…``."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import ConfigDict, SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic
from changefeed.runtime.secret import HasSecrets
from changefeed.stores.backend import StoreBackend
from changefeed.stores.redis import diagnostics, opening
from changefeed.stores.redis.connection import RedisAccess
from changefeed.stores.store import Store


class RedisSettings(HasSecrets):
    """``[backends.redis]``: better set in the environment than written into a file."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    password: SecretStr | None = None
    password_file: Path | None = None
    """A file that holds the password, as Kubernetes and Docker mount secrets."""

    @property
    def access(self) -> RedisAccess:
        return RedisAccess(password=self.secret_of("password"))


def _access(options: OpenOptions) -> RedisAccess:
    settings = options.settings
    return settings.access if isinstance(settings, RedisSettings) else RedisAccess()


def _store(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return opening.open_store(
        at.scheme, at.place, _access(options), keeps_changes=options.keeps_changes
    )


async def _check(
    address: Address, options: OpenOptions, *, feed: str
) -> AsyncIterator[Diagnostic]:
    del feed  # any feed's leases may be here
    async for found in diagnostics.check(address.scheme, address.place, _access(options)):
        yield found


BACKEND = StoreBackend(
    name="redis",
    place="//HOST:PORT/DB",
    open_store=_store,
    check=_check,
    settings=RedisSettings,
    locating=("fleet", "db"),
)
