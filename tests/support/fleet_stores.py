"""Servers that keep the leases of a fleet, and the addresses of leases on them.

For tests that stop, kill and freeze servers: each has its own.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from changefeed.leases.container import LeaseContainer
from tests.support.lease_place import LeasePlace
from tests.support.servers import Azurite, Missing, Postgres, Redis, Server

_KEYS = {"blob": Azurite.key}


@dataclass(frozen=True, kw_only=True)
class Store:
    """Servers, and the addresses of leases on them: one, or ownership and checkpoints."""

    servers: list[Server]
    addresses: list[str]

    @property
    def place(self) -> LeasePlace:
        return LeasePlace(addresses=self.addresses, keys=_KEYS)

    @property
    def flags(self) -> Sequence[str]:
        return self.place.flags

    @property
    def owner(self) -> Server:
        """The server that keeps ownership."""
        return self.servers[0]

    def at(self, port: int) -> "Store":
        """The same, with ownership reached through another port."""
        old = f"127.0.0.1:{self.owner.port}"
        moved = [x.replace(old, f"127.0.0.1:{port}") for x in self.addresses]
        return Store(servers=self.servers, addresses=moved)


def in_sqlite(file: Path) -> Store:
    return Store(servers=[], addresses=[f"sqlite:{file}"])


def in_postgres() -> Store:
    server = Postgres()
    return Store(servers=[server], addresses=[server.url])


def in_blobs() -> Store:
    server = Azurite()
    return Store(servers=[server], addresses=[f"blob+{server.endpoint}/leases/fleet"])


def in_redis_and_postgres() -> Store:
    owner, keeper = Redis(), Postgres()
    return Store(servers=[owner, keeper], addresses=[owner.url, keeper.url])


@contextlib.contextmanager
def served(make: Callable[[], Store]) -> Iterator[Store]:
    """Make a store, and run its servers for as long as the block lasts."""
    try:
        store = make()
    except Missing as missing:
        pytest.skip(str(missing))
    with contextlib.ExitStack() as running_servers:
        for server in store.servers:
            running_servers.callback(server.discard)
            server.start()
        yield store


ENVIRONMENT = LeasePlace(addresses=(), keys=_KEYS).environment


def opened(store: Store) -> contextlib.AbstractAsyncContextManager[LeaseContainer]:
    return store.place.open()
