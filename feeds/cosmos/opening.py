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
from changefeed.feeds.cosmos.spending import NO_OPTIONS, Budgets, ClientOptions


@asynccontextmanager
async def open_cosmos(
    address: CosmosAddress,
    access: CosmosAccess,
    *,
    options: ClientOptions = NO_OPTIONS,
    budgets: Budgets | None = None,
) -> AsyncIterator[CosmosFeed]:
    """Open the change feed of a container, as long as the block lasts.

    ``options`` is how it asks its account, and its share is that of all feeds of the container
    that have the same ``budgets``. Raise ``FeedRefused`` if there is no such container or no
    access to it, and ``FeedUnavailable`` if it does not answer.
    """
    opening = _opened(address, access, options, {} if budgets is None else budgets)
    async with opening as requests:
        yield await _feed_of(requests, address.mode)


@asynccontextmanager
async def open_items(
    address: CosmosAddress,
    access: CosmosAccess,
    *,
    options: ClientOptions = NO_OPTIONS,
) -> AsyncIterator[CosmosItems]:
    """Open the items of a container to queries, as long as the block lasts.

    Otherwise as ``open_cosmos``.
    """
    async with _opened(address, access, options, {}) as requests:
        yield CosmosItems(requests)


@asynccontextmanager
async def _opened(
    address: CosmosAddress,
    access: CosmosAccess,
    options: ClientOptions,
    budgets: Budgets,
) -> AsyncIterator[Requests]:
    connecting = connect(address, access, OF_READERS, **options.client_arguments)
    async with (
        connecting as client,
        Container.opened(container_of(client, address), OF_READERS) as container,
    ):
        yield Requests(container, options.budget(container.where, budgets))


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
