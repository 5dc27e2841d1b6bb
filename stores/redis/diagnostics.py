"""What a Redis must promise before leases go there: one judgement of what it says of itself.

``changefeed doctor`` shows all of it. A store with a problem is refused when it is opened.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, Severity, fine, problem, warning
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered
from changefeed.runtime.logs import get_logger
from changefeed.stores.password import password_of
from changefeed.stores.redis.address import RedisAddress, read_address
from changefeed.stores.redis.connection import Info, RedisCalls, connect, info
from changefeed.stores.redis.store import NEWEST, RedisStore
from changefeed.stores.rights import check_rights

_OLDEST = 5

_log = get_logger("changefeed.leases")


async def check(at: Address, options: OpenOptions) -> AsyncIterator[Diagnostic]:
    """Yield what is found. Raise as containers do where no more can be seen.

    It writes one record of its own and deletes it again, to see whether it may.
    """
    address = read_address(at.scheme, at.place)
    async with connect(address, password_of(options)) as client:
        server = await info(client, address)
        for found in server_diagnostics(server, keeps_changes=options.keeps_changes):
            yield found
        if server.get("role") != "slave":
            yield await _rights(client, address)


def require_fit(server: Info, address: RedisAddress, options: OpenOptions) -> None:
    """Raise for a problem: records would be lost, or could not be written. Log a warning where
    a host opens the store; a command that looks leaves that to ``doctor``.
    """
    for found in server_diagnostics(server, keeps_changes=options.keeps_changes):
        text = f"{address}: {found.text}; {found.advice}"
        if found.about == "role":
            raise StoreUnavailable(text)  # it may become the primary
        if found.severity is Severity.PROBLEM:
            raise answered(StoreRefused(text))
        if found.severity is Severity.WARNING and not options.must_exist:
            _log.warning("store.warning", what=found.about, text=text)


def server_diagnostics(server: Info, *, keeps_changes: bool) -> Iterator[Diagnostic]:
    """Judge a server by what it says of itself (``INFO``). One that ``keeps_changes`` may lose
    none; of leases, those who lost them find most again.
    """
    version = str(server.get("redis_version", "unknown"))
    first = version.partition(".")[0]
    if first.isdecimal() and int(first) < _OLDEST:
        yield warning(
            "server", f"Redis {version}", f"leases are tested with {_OLDEST} and newer"
        )
    else:
        yield fine("server", f"Redis {version}")
    if server.get("role") == "slave":
        yield problem("role", "it is a replica", "writes go to the primary: give its address")
    policy = str(server.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys-"):  # it may take keys that never expire, as ours are
        yield problem(
            "eviction",
            f"its maxmemory-policy {policy} may throw records away when memory is short",
            "set noeviction (CONFIG SET maxmemory-policy noeviction), or use another Redis "
            "than that of your cache",
        )
    else:
        yield fine("eviction", f"maxmemory-policy {policy} leaves records alone")
    yield _durability(server, keeps_changes=keeps_changes)


def _durability(server: Info, *, keeps_changes: bool) -> Diagnostic:
    if server.get("aof_enabled"):
        return fine("durability", "there is an append-only file")
    if keeps_changes:
        return problem(
            "durability",
            "it has no append-only file: a restart would lose the changes that it keeps",
            "set one (CONFIG SET appendonly yes)",
        )
    return warning(
        "durability",
        "there is no append-only file: a restart or failover loses the last writes, or all. "
        "Hosts find ownership again, and lose the checkpoints that are kept here",
        "set appendonly yes, unless checkpoints are kept elsewhere (leases.checkpoints)",
    )


async def _rights(client: Any, address: RedisAddress) -> Diagnostic:
    """Write as a fleet of its own: the name may be wrong, and no other has such keys."""
    beside, calls = replace(address, fleet=f"check-{uuid4().hex}"), RedisCalls(address)
    found = await check_rights(RedisStore(client, calls, beside))
    async with calls.one():
        await client.delete(beside.key(NEWEST))
    return found
