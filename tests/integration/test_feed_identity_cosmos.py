"""The identity of a container is kept beside leases in Cosmos DB, whatever keeps them there."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.addresses import OpenOptions, open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.feed_identity import KeepsFeedIdentity, refuse_another_feed
from changefeed.leases.lease import Lease
from tests.support.cosmos_feeds import CosmosWorld, cosmos_world

pytestmark = pytest.mark.real_time
LEASE = Lease(range=FeedRange(id=RangeId("0"), high="FF"), continuation=Continuation('"0"'))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[CosmosWorld]:
    async with cosmos_world() as made:
        yield made


def opened(
    world: CosmosWorld, kind: str, place: Path
) -> AbstractAsyncContextManager[LeaseContainer]:
    options = OpenOptions(create=True)
    cosmos = f"cosmos+{world.url}leases/leases?prefix=ours"
    apart = f"cosmos+{world.url}leases/checkpoints?prefix=ours"
    match kind:
        case "together":
            return open_container(cosmos, options)
        case "apart":
            return open_stores(cosmos, apart, options)
        case _:
            return open_stores(f"sqlite:{place / 'owners.db'}", apart, options)


@pytest.mark.parametrize("kind", ["together", "apart", "checkpoints only"])
async def test_leases_of_a_container_that_was_recreated_are_refused(
    world: CosmosWorld, kind: str, tmp_path: Path
) -> None:
    async with world.feed() as feed:
        first = feed.identity
    async with opened(world, kind, tmp_path) as leases:
        assert isinstance(leases, KeepsFeedIdentity)
        await refuse_another_feed(leases, first)
        await leases.create(LEASE)
    await world.delete()
    await world.create()
    async with world.feed() as feed, opened(world, kind, tmp_path) as leases:
        assert feed.identity != first
        with pytest.raises(ContainerRefused, match=r"deleted and recreated.*reset --all"):
            await refuse_another_feed(leases, feed.identity)
        assert [x.range_id for x in await leases.list()] == ["0"]


async def test_fleets_in_one_container_keep_an_identity_each(world: CosmosWorld) -> None:
    options = OpenOptions(create=True)
    for prefix in ("one", "two"):
        address = f"cosmos+{world.url}leases/leases?prefix={prefix}"
        async with open_container(address, options) as leases:
            await refuse_another_feed(leases, prefix)
            await leases.create(LEASE)
            await refuse_another_feed(leases, prefix)
