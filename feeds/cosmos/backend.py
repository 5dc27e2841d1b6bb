"""Cosmos DB among the feeds: ``cosmos://HOST/DATABASE/CONTAINER?mode=…``."""

from contextlib import AbstractAsyncContextManager
from operator import attrgetter

from changefeed.feeds.backend import FeedBackend, OpenOptions, PositionTraits
from changefeed.feeds.cosmos.address import AddressWrong, read_address
from changefeed.feeds.cosmos.feed import MODES, open_cosmos
from changefeed.feeds.cosmos.positions import lsn_of, position_after, sequences
from changefeed.feeds.cosmos.spending import OPTIONS, Shares
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed, Position
from changefeed.runtime.backends import Address


def _open(address: Address, options: OpenOptions) -> AbstractAsyncContextManager[Feed]:
    try:
        read = read_address(address.scheme, address.place, known={"mode", *OPTIONS})
        shares = Shares.of(read.options)
    except AddressWrong as error:
        raise FeedRefused(str(error)) from error
    mode = read.options.get("mode", "latest-version")
    if mode not in MODES:
        raise FeedRefused(f"unknown mode {mode!r} of a feed. Known modes: {', '.join(MODES)}")
    return open_cosmos(
        read, options.cosmos, mode=MODES[mode], shares=shares, budgets=options.budgets
    )


def position_traits() -> PositionTraits:
    first, second = sequences([1, 2])
    return PositionTraits(
        order=_order,
        position=position_after,
        step=second - first,
        identity=attrgetter("identity"),
    )


def _order(position: Position) -> int:
    lsn = lsn_of(position)
    if lsn is None:
        raise FeedRefused(
            f"the position {position!r} has no LSN that could be put in order: this account "
            f"writes its etags otherwise than every one seen so far. Read it with a host"
        )
    return sequences([lsn])[0]


BACKEND = FeedBackend(
    name="cosmos",
    place="//HOST/DATABASE/CONTAINER",
    open=_open,
    modes=tuple(MODES),
    positions=position_traits,
)
