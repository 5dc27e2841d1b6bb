from collections.abc import AsyncIterator

import pytest_asyncio

from changefeed.feeds.cosmos.feed import CosmosFeed
from tests.support.cosmos_feeds import CosmosWorld, cosmos_world


@pytest_asyncio.fixture
async def world() -> AsyncIterator[CosmosWorld]:
    async with cosmos_world() as made:
        yield made


@pytest_asyncio.fixture
async def feed(world: CosmosWorld) -> AsyncIterator[CosmosFeed]:
    async with world.feed() as opened:
        yield opened
