"""PostgreSQL among the stores: ``postgresql://USER@HOST/DATABASE?fleet=…``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.stores.backend import StoreBackend
from changefeed.stores.password import PasswordSettings, password_of
from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import connect
from changefeed.stores.postgres.diagnostics import check
from changefeed.stores.postgres.schema import create_schema, require_schema
from changefeed.stores.postgres.store import PostgresStore


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[PostgresStore]:
    address = read_address(at.place)
    async with connect(address, password_of(options)) as database:
        if options.create:
            await create_schema(database, address.schema)
        await require_schema(database, address.schema)
        yield PostgresStore(database, address.schema, address.fleet)


BACKEND = StoreBackend(
    name="postgres",
    place="//USER@HOST/DATABASE",
    open_store=_open,
    check=check,
    settings=PasswordSettings,
    locating=("fleet", "schema", "host", "port", "dbname", "database"),
)
