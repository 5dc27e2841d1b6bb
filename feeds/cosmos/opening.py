"""Opening a container: its changes, by address or over a client that is open; or its items."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress, Mode
from changefeed.feeds.cosmos.client import Container, connect, container_of, require_async
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.items import CosmosItems
from changefeed.feeds.cosmos.requests import OF_READERS, Requests
from changefeed.feeds.cosmos.snapshot import VersionsFeed
from changefeed.feeds.cosmos.spending import Budgets, ClientOptions


@asynccontextmanager
async def open_cosmos(
    address: CosmosAddress, access: CosmosAccess, budgets: Budgets | None = None
) -> AsyncIterator[CosmosFeed]:
    """Open the change feed of a container, as long as the block lasts.

    Its share is that of all feeds of the container that have the same ``budgets``. Raise
    ``FeedRefused`` if the container does not exist or denies access, and ``FeedUnavailable`` if
    it does not answer.
    """
    async with _opened(address, access, budgets) as requests:
        yield await _feed_of(requests, address.mode)


@asynccontextmanager
async def open_items(
    address: CosmosAddress, access: CosmosAccess
) -> AsyncIterator[CosmosItems]:
    """Open the items of a container to queries; otherwise as ``open_cosmos``."""
    async with _opened(address, access) as requests:
        yield CosmosItems(requests)


@asynccontextmanager
async def _opened(
    address: CosmosAddress, access: CosmosAccess, budgets: Budgets | None = None
) -> AsyncIterator[Requests]:
    with OF_READERS.errors(str(address)):
        options = ClientOptions.of(address.options)
    connecting = connect(address, access, OF_READERS, **options.client_arguments)
    async with (
        connecting as client,
        Container.opened(container_of(client, address), OF_READERS) as container,
    ):
        budget = options.budget(container.where, {} if budgets is None else budgets)
        yield Requests(container, budget)


@asynccontextmanager
async def feed_over(container: ContainerProxy, *, mode: Mode) -> AsyncIterator[CosmosFeed]:
    """Open the change feed of a container as an open client has it, which stays the caller's.

    Otherwise as ``open_cosmos``.
    """
    with OF_READERS.errors("the container of the feed"):
        require_async(container)
    async with Container.opened(container, OF_READERS) as opened:
        yield await _feed_of(Requests(opened), mode)


async def _feed_of(requests: Requests, mode: Mode) -> CosmosFeed:
    versions = mode == "all-versions"
    feed = VersionsFeed(requests) if versions else CosmosFeed(requests, mode=mode)
    await feed.ranges()
    return feed
