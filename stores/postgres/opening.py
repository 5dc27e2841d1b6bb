"""From an address to a store in PostgreSQL: connected, and its table found or created."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import PostgresAccess, connect
from changefeed.stores.postgres.schema import create_schema, require_schema
from changefeed.stores.postgres.store import PostgresStore


@asynccontextmanager
async def open_store(
    place: str, access: PostgresAccess | None = None, *, create: bool = False
) -> AsyncIterator[PostgresStore]:
    address = read_address(place)
    async with connect(address, access) as database:
        if create:
            await create_schema(database, address.schema)
        await require_schema(database, address.schema)
        yield PostgresStore(database, address.schema, address.fleet)
