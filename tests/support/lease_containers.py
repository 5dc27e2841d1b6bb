"""Fresh, empty lease containers for tests, and any number of clients to each."""

import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import pytest

from changefeed.leases.container import LeaseContainer
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.testing.proxies import delaying, proxied
from cosmos_emulator.testing import running
from tests.support import servers
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.independent_cosmos import independent_cosmos
from tests.support.lease_place import LeasePlace
from tests.support.thirdparty import importable, site_with_shelf

T = TypeVar("T")
Connect = Callable[[], Awaitable[LeaseContainer]]
"""Makes one more client to the same data; it is closed with the harness."""
Harness = Callable[[Path], AbstractAsyncContextManager[Connect]]
"""Makes a fresh container, with a directory of its own if it wants one."""
KEYS: Final = {"blob": servers.Azurite.key}


def same_object(
    make: Callable[[], T],
) -> Callable[[Path], AbstractAsyncContextManager[Callable[[], Awaitable[T]]]]:
    """Return a harness whose clients are one object."""

    @asynccontextmanager
    async def harness(_: Path) -> AsyncIterator[Callable[[], Awaitable[T]]]:
        made = make()

        async def connect() -> T:
            return made

        yield connect

    return harness


def memory_separate() -> LeaseContainer:
    return TwoStoreLeases(MemoryOwnership(), MemoryCheckpoints())


def memory_delayed() -> LeaseContainer:
    return proxied(MemoryLeases(), delaying(Random(1)))


def memory_separate_delayed() -> LeaseContainer:
    delay = delaying(Random(2))
    return TwoStoreLeases(
        proxied(MemoryOwnership(), delay), proxied(MemoryCheckpoints(), delay)
    )


def over(*kinds: str) -> Harness:
    """One container for both in a store of a kind; or ownership there, and checkpoints in one
    of another. Skips the test where a server is missing.
    """

    @asynccontextmanager
    async def harness(directory: Path) -> AsyncIterator[Connect]:
        addresses = [fresh_address(x, directory) for x in kinds]
        async with _clients(*addresses) as connect:
            yield connect

    return harness


def fresh_address(kind: str, directory: Path) -> str:
    """Return an address of leases that nobody has used: all tests share the servers."""
    name = f"fleet-{uuid.uuid4().hex[:12]}"
    try:
        match kind:
            case "postgres":
                return f"{servers.postgres().url}?fleet={name}"
            case "redis":
                return f"{servers.redis().url}?fleet={name}"
            case "blob":
                return f"blob+{servers.azurite().endpoint}/leases/{name}/hub/group"
            case "sqlite":
                return f"sqlite:{directory / name}.db"
    except servers.Missing as missing:
        pytest.skip(str(missing))
    raise AssertionError(f"there are no leases in {kind!r}")


@asynccontextmanager
async def cosmos(_: Path) -> AsyncIterator[Connect]:
    """Over the emulator, with a client of its own for each."""
    async with running() as url, _clients(_in_cosmos(url, "leases")) as connect:
        yield connect


@asynccontextmanager
async def cosmos_separate(_: Path) -> AsyncIterator[Connect]:
    """Ownership and checkpoints in two containers of the emulator."""
    async with running() as url:
        both = _in_cosmos(url, "leases"), _in_cosmos(url, "checkpoints")
        async with _clients(*both) as connect:
            yield connect


_fresh = itertools.count()


@asynccontextmanager
async def cosmos_independent(_: Path) -> AsyncIterator[Connect]:
    """Over an endpoint that others have written; skipped where it cannot be had."""
    url = await independent_cosmos()
    async with _clients(_in_cosmos(url, f"leases-{next(_fresh)}")) as connect:
        yield connect


def _in_cosmos(url: str, name: str) -> str:
    """``http://HOST:PORT/`` as an address of leases."""
    return f"cosmos+{url}d/{name}?prefix=fleet"


@asynccontextmanager
async def third_party(directory: Path) -> AsyncIterator[Connect]:
    """In a container that another package brings."""
    with importable(site_with_shelf(directory / "site")):
        async with _clients(f"shelf:{directory / 'leases'}") as connect:
            yield connect


@asynccontextmanager
async def _clients(*addresses: str) -> AsyncIterator[Connect]:
    place = LeasePlace(addresses=addresses, keys=KEYS)
    async with AsyncExitStack() as clients:

        async def connect() -> LeaseContainer:
            return await clients.enter_async_context(place.open())

        yield connect
