"""Fresh, empty lease containers for tests, and any number of clients to each."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from leases.container import LeaseContainer
from leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from leases.opening import open_container, open_stores
from leases.stores import SeparateStores
from tests.support.proxies import delaying, proxied

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
