"""Our stores keep the contract of ``Store``. A new one is one more line in KINDS."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.stores.addresses import open_store
from changefeed.stores.memory import MemoryStore
from changefeed.stores.store import Store
from changefeed.testing import ConnectStore, store_suite
from changefeed.testing.contracts import suite_of
from cosmos_emulator.testing import running
from tests.support.lease_containers import KEYS, fresh_address
from tests.support.thirdparty import importable, site_with_shelf

KINDS = ["memory", "sqlite", "postgres", "redis", "blob", "cosmos", "shelf"]

globals().update(suite_of(store_suite))


@asynccontextmanager
async def address_of(kind: str, directory: Path) -> AsyncIterator[str]:
    """Name a fresh place for records; what it takes to reach it is there meanwhile."""
    match kind:
        case "cosmos":
            async with running() as url:
                yield f"cosmos+{url}d/records"
        case "shelf":
            with importable(site_with_shelf(directory / "site")):
                yield f"shelf:{directory / 'records'}"
        case _:
            yield fresh_address(kind, directory)


@pytest.fixture(params=KINDS)
async def connect(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ConnectStore]:
    async with AsyncExitStack() as stack:
        memory = MemoryStore()
        address = ""
        if request.param != "memory":
            address = await stack.enter_async_context(address_of(request.param, tmp_path))
        keys = {x: {"key": key} for x, key in KEYS.items()}

        async def connect() -> Store:
            if not address:
                return memory
            options = OpenOptions(create=True, backends=keys)
            return await stack.enter_async_context(open_store(address, options))

        yield connect
