"""Redis among the stores: ``redis://HOST:PORT/DB?fleet=…``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.errors import StoreMissing
from changefeed.stores.backend import StoreBackend
from changefeed.stores.password import PasswordSettings, password_of
from changefeed.stores.redis.address import read_address
from changefeed.stores.redis.connection import connect, info
from changefeed.stores.redis.diagnostics import check, require_fit
from changefeed.stores.redis.store import RedisStore


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[RedisStore]:
    address = read_address(at.scheme, at.place)
    async with connect(address, password_of(options)) as client:
        server = await info(client, address)
        require_fit(server, address, options)
        store = RedisStore(client, address, server)
        if options.must_exist and not await store.is_there():
            raise StoreMissing(
                f"there is no fleet at {address} yet: check the name, or start a host",
                made_by_run=True,
            )
        yield store


BACKEND = StoreBackend(
    name="redis",
    place="//HOST:PORT/DB",
    open_store=_open,
    check=check,
    settings=PasswordSettings,
    locating=("fleet", "db"),
)
