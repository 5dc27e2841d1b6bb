"""Fresh, empty lease containers for tests, and any number of clients to each."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from changefeed.leases.addresses import OpenOptions, open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from changefeed.leases.separate_stores import SeparateStores
from tests.integration.emulator.running import running
from tests.support.independent_cosmos import independent_cosmos
from tests.support.proxies import delaying, proxied
from tests.support.thirdparty import importable, site_with_shelf

Connect = Callable[[], Awaitable[LeaseContainer]]
"""Makes one more client to the same data; it is closed with the harness."""
Harness = Callable[[Path], AbstractAsyncContextManager[Connect]]
"""Makes a fresh container, with a directory of its own if it wants one."""


def same_object(make: Callable[[], LeaseContainer]) -> Harness:
    @asynccontextmanager
    async def harness(_: Path) -> AsyncIterator[Connect]:
        container = make()

        async def connect() -> LeaseContainer:
            return container

        yield connect

    return harness


def opened_each(
    open_in: Callable[[Path], AbstractAsyncContextManager[LeaseContainer]],
) -> Harness:
    @asynccontextmanager
    async def harness(directory: Path) -> AsyncIterator[Connect]:
        async with AsyncExitStack() as clients:

            async def connect() -> LeaseContainer:
                return await clients.enter_async_context(open_in(directory))

            yield connect

    return harness


def memory_separate() -> LeaseContainer:
    return SeparateStores(MemoryOwnership(), MemoryCheckpoints())


def memory_delayed() -> LeaseContainer:
    return proxied(MemoryLeases(), delaying(Random(1)))


def memory_separate_delayed() -> LeaseContainer:
    delay = delaying(Random(2))
    return SeparateStores(
        proxied(MemoryOwnership(), delay), proxied(MemoryCheckpoints(), delay)
    )


def sqlite(directory: Path) -> AbstractAsyncContextManager[LeaseContainer]:
    return open_container(f"sqlite:{directory / 'leases.db'}")


def sqlite_separate(directory: Path) -> AbstractAsyncContextManager[LeaseContainer]:
    return open_stores(
        f"sqlite:{directory / 'ownership.db'}", f"sqlite:{directory / 'checkpoints.db'}"
    )


@asynccontextmanager
async def cosmos(_: Path) -> AsyncIterator[Connect]:
    """Over the emulator, with a client of its own for each."""
    async with running() as url, _clients(lambda: _cosmos_at(url)) as connect:
        yield connect


@asynccontextmanager
async def cosmos_separate(_: Path) -> AsyncIterator[Connect]:
    """Ownership and checkpoints in two containers of the emulator."""
    async with running() as url:
        place = _address_of(url, "leases")
        stores = _address_of(url, "checkpoints")
        async with _clients(lambda: open_stores(place, stores, _CREATE)) as connect:
            yield connect


@asynccontextmanager
async def third_party(directory: Path) -> AsyncIterator[Connect]:
    """In a container that another package brings."""
    address = f"shelf:{directory / 'leases'}"
    with importable(site_with_shelf(directory / "site")):
        async with _clients(lambda: open_container(address)) as connect:
            yield connect


_fresh = itertools.count()


@asynccontextmanager
async def cosmos_independent(_: Path) -> AsyncIterator[Connect]:
    """Over an endpoint that others have written; skipped where it cannot be had."""
    url = await independent_cosmos()
    name = f"leases-{next(_fresh)}"
    async with _clients(lambda: _cosmos_at(url, name)) as connect:
        yield connect


_CREATE = OpenOptions(create=True)


def _cosmos_at(url: str, name: str = "leases") -> AbstractAsyncContextManager[LeaseContainer]:
    return open_container(_address_of(url, name), _CREATE)


def _address_of(url: str, name: str) -> str:
    """``http://HOST:PORT/`` as an address of leases."""
    return f"cosmos+{url}d/{name}?prefix=fleet"


@asynccontextmanager
async def _clients(
    make: Callable[[], AbstractAsyncContextManager[LeaseContainer]],
) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as clients:

        async def connect() -> LeaseContainer:
            return await clients.enter_async_context(make())

        yield connect
