"""What a Redis must promise before leases go there, by what it says of itself (``INFO``)."""

from collections.abc import AsyncIterator

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.diagnostics import Diagnostic, Severity, fine, warning
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered
from changefeed.runtime.logs import get_logger
from changefeed.stores.redis.address import RedisAddress
from changefeed.stores.redis.connection import Info
from changefeed.stores.redis.store import RedisStore

_log = get_logger("changefeed.leases")


async def check(store: RedisStore) -> AsyncIterator[Diagnostic]:
    """Yield what the server said when the store was opened."""
    yield fine("server", f"Redis {store.server.get('redis_version', 'unknown')}")
    yield _durability(store.server)


def require_fit(server: Info, address: RedisAddress, options: OpenOptions) -> None:
    """Raise where records would be lost, or could not be written. Log where a restart loses
    those of a host that opens the store; a command that looks leaves that to ``doctor``.
    """
    if server.get("role") == "slave":  # it may become the primary
        raise StoreUnavailable(
            f"{address}: it is a replica; writes go to the primary: give its address"
        )
    policy = str(server.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys-"):  # it may take keys that never expire, as ours are
        raise _refused(
            f"{address}: its maxmemory-policy {policy} may throw records away when memory is "
            "short; set noeviction (CONFIG SET maxmemory-policy noeviction), or use another "
            "Redis than that of your cache"
        )
    found = _durability(server)
    if found.severity is Severity.FINE:
        return
    if options.keeps_changes:
        raise _refused(
            f"{address}: it has no append-only file: a restart would lose the changes that it "
            "keeps; set one (CONFIG SET appendonly yes)"
        )
    if not options.must_exist:
        text = f"{address}: {found.text}; {found.advice}"
        _log.warning("store.warning", what=found.about, text=text)


def _refused(text: str) -> StoreRefused:
    return answered(StoreRefused(text))


def _durability(server: Info) -> Diagnostic:
    if server.get("aof_enabled"):
        return fine("durability", "there is an append-only file")
    return warning(
        "durability",
        "there is no append-only file: a restart or failover loses the last writes, or all. "
        "Hosts find ownership again, and lose the checkpoints that are kept here",
        "set appendonly yes, unless checkpoints are kept elsewhere (leases.checkpoints)",
    )
