"""Cosmos DB among the feeds: ``cosmos://HOST/DATABASE/CONTAINER?mode=…``."""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from operator import attrgetter

from changefeed.feeds.backend import FeedBackend, OpenOptions, PositionTraits
from changefeed.feeds.cosmos.address import (
    MODES,
    AddressWrong,
    CosmosAccess,
    CosmosAddress,
    read_address,
)
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.items import CosmosItems
from changefeed.feeds.cosmos.opening import open_cosmos, open_items
from changefeed.feeds.cosmos.positions import last_sequence, position_after
from changefeed.feeds.cosmos.snapshot import beside, lsn_at, snapshot_end
from changefeed.feeds.cosmos.spending import OPTIONS
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed, Position
from changefeed.runtime.backends import Address


def open_items_at(
    address: Address, access: CosmosAccess
) -> AbstractAsyncContextManager[CosmosItems]:
    """Open the items of the container at an address. Raise what ``open_items`` raises."""
    return open_items(_read(address, OPTIONS), access)


def _read(address: Address, known: Collection[str]) -> CosmosAddress:
    try:
        return read_address(address.scheme, address.place, known=known)
    except AddressWrong as error:
        raise FeedRefused(str(error)) from error


def _open(address: Address, options: OpenOptions) -> AbstractAsyncContextManager[Feed]:
    read = _read(address, ("mode", *OPTIONS))
    return open_cosmos(read, options.cosmos, options.budgets)


def position_traits() -> PositionTraits:
    return PositionTraits(
        order=_order,
        position=position_after,
        step=last_sequence(1) - last_sequence(0),
        identity=attrgetter("identity"),
        hash_of=_hash_of,
        snapshot_end=snapshot_end,
        beside=beside,
    )


async def _hash_of(feed: Feed, key: str) -> str | None:
    assert isinstance(feed, CosmosFeed), "these are the traits of such feeds"
    return await feed.hash_of(key)


def _order(position: Position) -> int:
    lsn = lsn_at(position)
    if lsn is None:
        raise FeedRefused(
            f"the position {position!r} has no LSN that could be put in order: this account "
            f"writes its etags otherwise than every one seen so far. Read it with a host"
        )
    return last_sequence(lsn)


BACKEND = FeedBackend(
    name="cosmos",
    place="//HOST/DATABASE/CONTAINER",
    open=_open,
    modes=tuple(MODES),
    positions=position_traits,
)
