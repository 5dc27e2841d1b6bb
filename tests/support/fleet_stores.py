"""Servers that keep the leases of a fleet, and the addresses of leases on them.

For tests that stop, kill and freeze servers: each has its own. The fixture ``store`` starts
what its parameter makes (``indirect=True``).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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

    @property
    def keeper(self) -> Server:
        """The server that keeps checkpoints."""
        return self.servers[-1]

    def at(self, port: int) -> "Store":
        """The same, with ownership reached through another port."""
        old = f"127.0.0.1:{self.owner.port}"
        moved = [x.replace(old, f"127.0.0.1:{port}") for x in self.addresses]
        return Store(servers=self.servers, addresses=moved)


def in_postgres() -> Store:
    server = Postgres()
    return Store(servers=[server], addresses=[server.url])


def in_redis() -> Store:
    server = Redis("--appendonly", "yes", "--appendfsync", "always")
    return Store(servers=[server], addresses=[server.url])


def in_blobs() -> Store:
    server = Azurite()
    return Store(servers=[server], addresses=[f"blob+{server.endpoint}/leases/fleet"])


def in_redis_and_blobs() -> Store:
    owner, keeper = Redis(), Azurite()
    addresses = [owner.url, f"blob+{keeper.endpoint}/leases/fleet"]
    return Store(servers=[owner, keeper], addresses=addresses)


def in_redis_and_postgres() -> Store:
    owner, keeper = Redis(), Postgres()
    return Store(servers=[owner, keeper], addresses=[owner.url, keeper.url])


STORES = [in_postgres, in_redis, in_blobs]
MIXTURE = in_redis_and_blobs


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    make: Callable[[], Store] = request.param
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
