"""From the address of a feed to what planners and tasks need of it."""

from contextlib import AbstractAsyncContextManager
from functools import partial

from feeds.errors import FeedRefused
from feeds.feed import Continuation, Feed
from feeds.opening import open_feed

from .access import Access
from .access_feed import FeedAccess
from .access_log import LogAccess


def open_access(address: str) -> Access:
    """Return access to the feed at an address; the caller closes it.

    Raise ``FeedRefused``, with advice, for an address that leads to no feed.
    """
    scheme, _, place = address.partition(":")
    if scheme == "eventlog" and place:
        return LogAccess(place)
    opening = partial(_opened, address)
    if scheme in ("cosmos", "cosmos+http"):
        return FeedAccess(opening, _cosmos_order, keeps_bounds=True)
    open_feed(address)  # raises, with advice
    raise FeedRefused(f"{address!r}: the positions of this feed cannot be put in order")


def _opened(address: str) -> AbstractAsyncContextManager[Feed]:
    return open_feed(address)


def _cosmos_order(position: Continuation) -> int:
    """Return the sequence of the last change at an LSN; see ``feeds.cosmos.positions``."""
    from feeds.cosmos.positions import lsn_of, sequences  # noqa: PLC0415 - brings the client

    lsn = lsn_of(position)
    if lsn is None:
        raise FeedRefused(
            f"the position {position!r} has no LSN that could be put in order: this account "
            f"writes its etags otherwise than every one seen so far. Read it with a host"
        )
    return sequences([lsn])[0]
