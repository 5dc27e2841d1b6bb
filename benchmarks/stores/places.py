"""The stores: which servers each takes, and the addresses of a fleet's leases there."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import servers
from tests.support.lease_place import LeasePlace

from .counting_proxy import Counted, counting

Ports = Mapping[str, int]
"""Where servers listen, by kind."""
_ACCOUNT = servers.Azurite.account


class _Emulator(servers.Server):
    """Cosmos DB on this machine, in memory."""

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "changefeed", "emulator", f"--port={self.port}"]

    def ready(self) -> bool:
        return servers.accepts(self.port)


@cache
def _emulator() -> servers.Server:
    return servers.started(_Emulator())


@cache
def _redis_with_a_log() -> servers.Server:
    return servers.started(servers.Redis("--appendonly", "yes"))


_SERVERS: Mapping[str, Callable[[], servers.Server]] = {
    "cosmos": _emulator,
    "postgres": servers.postgres,
    "redis": _redis_with_a_log,
    "azurite": servers.azurite,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """``addresses`` takes the name of a fleet, a folder, and the port of each server."""

    name: str
    servers: Sequence[str] = ()
    addresses: Callable[[str, Path, Ports], Sequence[str]]

    def place(self, fleet: str, folder: Path, ports: Ports) -> LeasePlace:
        keys = {"blob": servers.Azurite.key} if "azurite" in self.servers else {}
        mine = f"{fleet}-{self.name.replace('+', '-')}"  # stores share servers
        return LeasePlace(addresses=self.addresses(mine, folder, ports), keys=keys)


def _sqlite(fleet: str, folder: Path, _: Ports) -> str:
    return f"sqlite:{folder / fleet}.db"


def _cosmos(fleet: str, _: Path, ports: Ports) -> str:
    return f"cosmos+http://127.0.0.1:{ports['cosmos']}/bench/leases?prefix={fleet}"


def _postgres(fleet: str, _: Path, ports: Ports) -> str:
    return f"postgresql://postgres@127.0.0.1:{ports['postgres']}/postgres?fleet={fleet}"


def _redis(fleet: str, _: Path, ports: Ports) -> str:
    return f"redis://127.0.0.1:{ports['redis']}/0?fleet={fleet}"


def _blob(fleet: str, _: Path, ports: Ports) -> str:
    return f"blob+http://127.0.0.1:{ports['azurite']}/{_ACCOUNT}/bench/{fleet}"


STORES: Sequence[Store] = (
    Store(name="sqlite", addresses=lambda *x: [_sqlite(*x)]),
    Store(name="postgres", servers=["postgres"], addresses=lambda *x: [_postgres(*x)]),
    Store(name="redis", servers=["redis"], addresses=lambda *x: [_redis(*x)]),
    Store(name="cosmos", servers=["cosmos"], addresses=lambda *x: [_cosmos(*x)]),
    Store(name="blob", servers=["azurite"], addresses=lambda *x: [_blob(*x)]),
    Store(
        name="redis+blob",
        servers=["redis", "azurite"],
        addresses=lambda *x: [_redis(*x), _blob(*x)],
    ),
)


def servers_of(store: Store) -> Ports:
    """Start the servers of a store, those that do not run yet. Raise ``Missing``."""
    return {kind: _SERVERS[kind]().port for kind in store.servers}


@asynccontextmanager
async def counted_place(
    store: Store, ports: Ports, fleet: str
) -> AsyncIterator[tuple[LeasePlace, Sequence[Counted]]]:
    """Yield where a fleet has its leases, through proxies that count."""
    async with AsyncExitStack() as proxies:
        folder = Path(proxies.enter_context(TemporaryDirectory(prefix="bench-")))
        counts = {
            kind: await proxies.enter_async_context(counting(port))
            for kind, port in ports.items()
        }
        through = {kind: x.port for kind, x in counts.items()}
        yield store.place(fleet, folder, through), list(counts.values())
