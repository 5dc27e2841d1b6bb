"""Looking at leases in Redis before hosts run on it, or when they cannot."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.password import password_of
from changefeed.stores.redis.address import RedisAddress, read_address
from changefeed.stores.redis.connection import Info, RedisCalls, connect, evicts, info
from changefeed.stores.redis.store import NEWEST, RedisStore
from changefeed.stores.store import may_write

_OLDEST = 5


async def check(at: Address, options: OpenOptions) -> AsyncIterator[Diagnostic]:
    """Yield what is found. Raise as containers do where no more can be seen.

    It writes one record of its own and deletes it again, to see whether it may.
    """
    address = read_address(at.scheme, at.place)
    async with connect(address, password_of(options)) as client:
        server = await info(client, address)
        for found in server_diagnostics(server):
            yield found
        if server.get("role") != "slave":
            yield await _rights(client, address)


def server_diagnostics(server: Info) -> Iterator[Diagnostic]:
    """Judge a server by what it says of itself (``INFO``)."""
    version = str(server.get("redis_version", "unknown"))
    first = version.partition(".")[0]
    if first.isdecimal() and int(first) < _OLDEST:
        yield warning(
            "server", f"Redis {version}", f"leases are tested with {_OLDEST} and newer"
        )
    else:
        yield fine("server", f"Redis {version}")
    if server.get("role") == "slave":
        yield problem("role", "it is a replica", "give the address of the primary")
    policy = str(server.get("maxmemory_policy", "noeviction"))
    if evicts(policy):
        yield problem(
            "eviction",
            f"maxmemory-policy {policy} may throw leases away when memory is short",
            "set noeviction, or use another Redis than that of your cache",
        )
    else:
        yield fine("eviction", f"maxmemory-policy {policy} leaves leases alone")
    yield _durability(server)


def _durability(server: Info) -> Diagnostic:
    if server.get("aof_enabled"):
        return fine("durability", "there is an append-only file")
    return warning(
        "durability",
        "there is no append-only file: a restart or failover loses the last writes, or all. "
        "Ownership is found again by itself; checkpoints are not",
        "keep checkpoints elsewhere (leases.checkpoints), or set appendonly yes",
    )


async def _rights(client: Any, address: RedisAddress) -> Diagnostic:
    """Write as a fleet of its own: the name may be wrong, and no other has such keys."""
    beside, calls = replace(address, fleet=f"check-{uuid4().hex}"), RedisCalls(address)
    may = await may_write(RedisStore(client, calls, beside))
    async with calls.one():
        await client.delete(beside.key(NEWEST))
    if not may:
        return problem("rights", "a record that was written was not there", "is it a primary?")
    return fine("rights", "records can be read, created, changed and deleted")
