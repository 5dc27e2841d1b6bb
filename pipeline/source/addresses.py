"""From the address of a feed to what planners and tasks need of it."""

from collections.abc import Collection
from functools import partial
from urllib.parse import parse_qsl, urlencode

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed, RangeId
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.eventlog_reader import LogAccess
from changefeed.pipeline.source.feed_reader import FeedAccess, FeedKind
from changefeed.pipeline.source.position_order import cosmos_position_order
from changefeed.pipeline.source.reader import Access

_COSMOS = ("cosmos", "cosmos+http")
_ALL_VERSIONS = "all-versions"


def open_access(address: str, only: Collection[RangeId] = ()) -> Access:
    """Return access to the feed at an address; the caller closes it.

    ``only`` are the ranges that are wanted, with what descends from them; all, if empty.
    Raise ``FeedRefused``, with advice, for an address that leads to no feed.
    """
    scheme, _, place = address.partition(":")
    if scheme == "eventlog" and place:
        return LogAccess(place, only=only)
    if scheme in _COSMOS:
        return FeedAccess(partial(open_feed, address), cosmos_kind(), only=only)
    open_feed(address)  # raises, with advice
    raise FeedRefused(f"{address!r}: the positions of this feed cannot be put in order")


def cosmos_kind() -> FeedKind:
    return FeedKind(
        order_of_positions=cosmos_position_order(),
        successors_inherit_positions=True,
        identity=_container,
    )


def with_mode(address: str, mode: str) -> str:
    """Return the address at which a feed is read in a mode: ``latest-version`` or
    ``all-versions``. Raise ``PipelineRefused`` for a feed that has no such mode.
    """
    scheme, _, _ = address.partition(":")
    if scheme not in _COSMOS:
        if mode == _ALL_VERSIONS:
            return address
        raise PipelineRefused(
            f"mode={mode!r}: {scheme!r} has all versions only; leave mode out, or write "
            f"{_ALL_VERSIONS}"
        )
    place, _, query = address.partition("?")
    options = dict(parse_qsl(query))
    if options.setdefault("mode", mode) != mode:
        raise PipelineRefused(f"mode={mode!r}, but the feed is {address!r}: say it once")
    return f"{place}?{urlencode(options)}"


def _container(feed: Feed) -> str:
    """Return the resource id of the container that a feed is open on."""
    from changefeed.feeds.cosmos import CosmosFeed  # noqa: PLC0415 - brings the client

    assert isinstance(feed, CosmosFeed), "addresses of Cosmos DB lead to such feeds"
    return feed.container_rid
