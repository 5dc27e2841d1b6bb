from collections.abc import AsyncIterator

import pytest_asyncio
from azure.cosmos.aio import ContainerProxy, CosmosClient

from changefeed.emulator import DEVELOPMENT_KEY
from tests.integration.emulator.running import Hand, container, hand, running


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    async with running() as url:
        yield url


@pytest_asyncio.fixture
async def by_hand(url: str) -> AsyncIterator[Hand]:
    async with hand(url) as made:
        yield made


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[CosmosClient]:
    async with CosmosClient(url, DEVELOPMENT_KEY) as made:
        yield made


@pytest_asyncio.fixture
async def items(client: CosmosClient) -> ContainerProxy:
    """A container through the real client."""
    return await container(client)
