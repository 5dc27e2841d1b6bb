"""From an address to a store in Redis: connected, and its settings found to be safe."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.stores.redis.address import read_address
from changefeed.stores.redis.connection import Calls, RedisAccess, connect, info, require_fit
from changefeed.stores.redis.store import RedisStore


@asynccontextmanager
async def open_store(
    scheme: str,
    place: str,
    access: RedisAccess | None = None,
    *,
    keeps_changes: bool = False,
) -> AsyncIterator[RedisStore]:
    address = read_address(scheme, place)
    async with connect(address, access) as client:
        require_fit(await info(client, address), address, keeps_changes=keeps_changes)
        yield RedisStore(client, Calls(address), address)
