"""From an address to leases in Redis: connected, and its settings found to be safe."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from changefeed.leases.conditional import (
    ConditionalCheckpoints,
    ConditionalLeases,
    ConditionalOwnership,
)
from changefeed.leases.lease import Checkpoint, Lease, Member
from changefeed.leases.redis.address import RedisAddress, read_address
from changefeed.leases.redis.connection import RedisAccess, connect, info, require_fit
from changefeed.leases.redis.tables import RedisFeedText, RedisTable


@asynccontextmanager
async def open_leases(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalLeases]:
    """Ownership and checkpoints under ``leases``; hosts under ``members``."""
    async with _opened(scheme, place, access) as (client, address):
        yield ConditionalLeases(
            RedisTable(client, address, "leases", Lease),
            RedisTable(client, address, "members", Member),
            RedisFeedText(client, address),
        )


@asynccontextmanager
async def open_ownership(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalOwnership]:
    """Ownership alone, under ``ownership``; hosts under ``members``."""
    async with _opened(scheme, place, access) as (client, address):
        yield ConditionalOwnership(
            RedisTable(client, address, "ownership", Lease),
            RedisTable(client, address, "members", Member),
            RedisFeedText(client, address),
        )


@asynccontextmanager
async def open_checkpoints(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalCheckpoints]:
    """Checkpoints alone, under ``checkpoints``."""
    async with _opened(scheme, place, access) as (client, address):
        yield ConditionalCheckpoints(RedisTable(client, address, "checkpoints", Checkpoint))


@asynccontextmanager
async def _opened(
    scheme: str, place: str, access: RedisAccess | None
) -> AsyncIterator[tuple[Any, RedisAddress]]:
    address = read_address(scheme, place)
    async with connect(address, access) as client:
        require_fit(await info(client, address), address)
        yield client, address
