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
from changefeed.leases.redis.connection import Calls, RedisAccess, connect, info, require_fit
from changefeed.leases.redis.tables import RedisFeedText, RedisFleet, RedisTable


@asynccontextmanager
async def open_leases(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalLeases]:
    """Ownership and checkpoints under ``leases``; hosts under ``members``."""
    async with _opened(scheme, place, access) as at:
        leases = RedisTable(*at, "leases", Lease)
        members = RedisTable(*at, "members", Member)
        fleet = RedisFleet(*at[:2], leases, members)
        yield ConditionalLeases(leases, members, RedisFeedText(*at), fleet)


@asynccontextmanager
async def open_ownership(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalOwnership]:
    """Ownership alone, under ``ownership``; hosts under ``members``."""
    async with _opened(scheme, place, access) as at:
        leases = RedisTable(*at, "ownership", Lease)
        members = RedisTable(*at, "members", Member)
        fleet = RedisFleet(*at[:2], leases, members)
        yield ConditionalOwnership(leases, members, RedisFeedText(*at), fleet)


@asynccontextmanager
async def open_checkpoints(
    scheme: str, place: str, access: RedisAccess | None = None
) -> AsyncIterator[ConditionalCheckpoints]:
    """Checkpoints alone, under ``checkpoints``."""
    async with _opened(scheme, place, access) as at:
        yield ConditionalCheckpoints(RedisTable(*at, "checkpoints", Checkpoint))


@asynccontextmanager
async def _opened(
    scheme: str, place: str, access: RedisAccess | None
) -> AsyncIterator[tuple[Any, Calls, RedisAddress]]:
    address = read_address(scheme, place)
    async with connect(address, access) as client:
        require_fit(await info(client, address), address)
        yield client, Calls(address), address
