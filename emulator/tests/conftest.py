"""What the emulator's tests share: it runs on the loop of a test, which is a real one."""

from collections.abc import AsyncIterator

import hypothesis
import pytest_asyncio
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from cosmos_emulator.testing import running
from emulator.tests.by_hand import Hand, container, hand

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


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
