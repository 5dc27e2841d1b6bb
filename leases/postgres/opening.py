"""From an address to leases in PostgreSQL: connected, and the tables found or created."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from changefeed.leases.conditional import (
    ConditionalCheckpoints,
    ConditionalLeases,
    ConditionalOwnership,
)
from changefeed.leases.postgres.address import PostgresAddress, read_address
from changefeed.leases.postgres.connection import Database, PostgresAccess, connect
from changefeed.leases.postgres.fleet import PostgresFleet
from changefeed.leases.postgres.schema import create_schema, require_schema
from changefeed.leases.postgres.tables import (
    CHECKPOINTS,
    LEASES,
    MEMBERS,
    OWNERSHIP,
    Kind,
    PostgresFeedText,
    PostgresTable,
)
from changefeed.leases.tables import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    database: Database
    address: PostgresAddress

    @property
    def feed(self) -> PostgresFeedText:
        return PostgresFeedText(self.database, self.address.schema, self.address.fleet)

    def table(self, kind: Kind[Record]) -> PostgresTable[Record]:
        return PostgresTable(self.database, kind, self.address.schema, self.address.fleet)


@asynccontextmanager
async def open_leases(
    place: str, access: PostgresAccess | None = None, *, create: bool = False
) -> AsyncIterator[ConditionalLeases]:
    """Ownership and checkpoints in one row of ``leases``; hosts in ``members``."""
    async with _opened(place, access, create=create) as opened:
        leases, members = opened.table(LEASES), opened.table(MEMBERS)
        fleet = PostgresFleet(opened.database, leases, members)
        yield ConditionalLeases(leases, members, opened.feed, fleet)


@asynccontextmanager
async def open_ownership(
    place: str, access: PostgresAccess | None = None, *, create: bool = False
) -> AsyncIterator[ConditionalOwnership]:
    """Ownership alone, in ``ownership``; hosts in ``members``."""
    async with _opened(place, access, create=create) as opened:
        leases, members = opened.table(OWNERSHIP), opened.table(MEMBERS)
        fleet = PostgresFleet(opened.database, leases, members)
        yield ConditionalOwnership(leases, members, opened.feed, fleet)


@asynccontextmanager
async def open_checkpoints(
    place: str, access: PostgresAccess | None = None, *, create: bool = False
) -> AsyncIterator[ConditionalCheckpoints]:
    """Checkpoints alone, in ``checkpoints``."""
    async with _opened(place, access, create=create) as opened:
        yield ConditionalCheckpoints(opened.table(CHECKPOINTS))


@asynccontextmanager
async def _opened(
    place: str, access: PostgresAccess | None, *, create: bool
) -> AsyncIterator[_Opened]:
    address = read_address(place)
    async with connect(address, access) as database:
        if create:
            await create_schema(database, address.schema)
        await require_schema(database, address.schema)
        yield _Opened(database=database, address=address)
