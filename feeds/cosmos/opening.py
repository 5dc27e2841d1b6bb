"""Opening a container: its changes, by address or over a client that is open; or its items."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from azure.cosmos.aio import ContainerProxy

from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress, Mode, account_of
from changefeed.feeds.cosmos.client import client_of, require_async
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.items import CosmosItems
from changefeed.feeds.cosmos.requests import OF_READERS, Requests, asked
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
    async with _opened(address, access, options, {} if budgets is None else budgets) as asked:
        yield await _feed_of(asked, address.mode)


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
    with OF_READERS.errors(str(address)):
        account = account_of(address, access)
    where = f"{account.endpoint}{address.database}/{address.container}"
    async with AsyncExitStack() as stack:
        opening = stack.enter_async_context(client_of(account, **options.client_arguments))
        client = await asked(where, opening)
        database = client.get_database_client(address.database)
        container = database.get_container_client(address.container)
        budget = options.budget(where, budgets)
        failover = await stack.enter_async_context(Failover.opened(container))
        yield await Requests.opened(failover, where=where, budget=budget)


@asynccontextmanager
async def feed_over(container: ContainerProxy, *, mode: Mode) -> AsyncIterator[CosmosFeed]:
    """Open the change feed of a container as an open client has it, which stays the caller's.

    Otherwise as ``open_cosmos``.
    """
    with OF_READERS.errors("the container of the feed"):
        where = require_async(container)
    async with Failover.opened(container) as failover:
        yield await _feed_of(await Requests.opened(failover, where=where), mode)


async def _feed_of(requests: Requests, mode: Mode) -> CosmosFeed:
    versions = mode == "all-versions"
    feed = VersionsFeed(requests) if versions else CosmosFeed(requests, mode=mode)
    await feed.ranges()
    return feed
