"""Access to feeds that a process of Spark keeps open from one use to the next.

To open a feed of Cosmos DB takes a client and some requests: as long as two pages of it
take. A worker of Spark runs task after task, and a planner plans batch after batch, so each
opens a feed once. What a use has failed with is closed, and so is what it has left before its
end; the next one opens the feed again. An event log, and what brokers or a store have, is
quick to open, and is not kept.
"""

import atexit
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.reader import Access

_Key: TypeAlias = tuple[int, str, tuple[RangeId, ...]]

_MAX_IDLE: Final = 2
"""Feeds that stay open while nobody reads them: those of the queries that take turns."""

_kept: Final[dict[_Key, tuple[FeedAccess, CosmosAccess | None]]] = {}
"""By process, for a fork of one has its event loops without the threads that run them."""


@contextmanager
def kept_access(
    address: str,
    cosmos: CosmosAccess | None = None,
    *,
    only: Collection[RangeId] = (),
    feed: str = "",
) -> Iterator[Access]:
    """Yield access to a feed, to this caller alone. Raise what opening it raises.

    What was opened by other credentials is not lent out. Nor is a container that was recreated
    since: one with another identity than ``feed``, or that is not there, if none is given.
    """
    key = os.getpid(), address, tuple(only)
    access: Access = _taken(key, cosmos, feed) or open_access(address, only, cosmos=cosmos)
    try:
        yield access
    except BaseException:
        access.close()
        raise
    if isinstance(access, FeedAccess):
        _keep(key, access, cosmos)
    else:
        access.close()


@atexit.register
def close_kept() -> None:
    """Close what nobody reads now."""
    for key in [x for x in _kept if x[0] == os.getpid()]:
        _kept.pop(key)[0].close()


def _taken(key: _Key, cosmos: CosmosAccess | None, feed: str) -> FeedAccess | None:
    access, opened_by = _kept.pop(key, (None, None))
    if access is None or (opened_by == cosmos and _is_there(access, feed)):
        return access
    access.close()
    return None


def _is_there(access: FeedAccess, feed: str) -> bool:
    if feed:
        return access.identity() == feed
    with suppress(FeedError, PipelineRefused):
        access.ranges()
        return True
    return False


def _keep(key: _Key, access: FeedAccess, cosmos: CosmosAccess | None) -> None:
    mine = [x for x in _kept if x[0] == os.getpid()]
    before, _ = _kept.pop(key, (None, None))
    if before is not None:
        before.close()
    elif len(mine) >= _MAX_IDLE:
        _kept.pop(mine[0])[0].close()
    _kept[key] = access, cosmos
