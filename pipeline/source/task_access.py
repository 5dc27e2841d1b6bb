"""Access to feeds that a worker keeps open from one task to the next.

To open a feed of Cosmos DB takes a client and some requests: as long as two pages of it
take. A worker of Spark runs task after task, so it opens a feed once. What a task has
failed with is closed, and so is what a task has left before its end; the next task opens
the feed again. An event log, and what brokers or a store have, is quick to open, and is not
kept.
"""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.reader import Access

_MAX_IDLE: Final = 2
"""Feeds that stay open while no task reads them: those of the queries that take turns."""

_kept: Final[dict[tuple[int, str], tuple[FeedAccess, CosmosAccess | None]]] = {}
"""By process, for a fork of one has its event loops without the threads that run them."""


@contextmanager
def task_access(address: str, cosmos: CosmosAccess | None = None) -> Iterator[Access]:
    """Yield access to a feed, to this task alone. Raise what opening it raises.

    What was opened by other credentials is not lent out.
    """
    access = _taken(address, cosmos) or open_access(address, cosmos=cosmos)
    try:
        yield access
    except BaseException:
        access.close()
        raise
    if isinstance(access, FeedAccess):
        _keep(address, access, cosmos)
    else:
        access.close()


@atexit.register
def close_kept() -> None:
    """Close what no task reads now."""
    for key in [x for x in _kept if x[0] == os.getpid()]:
        _kept.pop(key)[0].close()


def _taken(address: str, cosmos: CosmosAccess | None) -> FeedAccess | None:
    access, opened_by = _kept.pop((os.getpid(), address), (None, None))
    if access is not None and opened_by != cosmos:
        access.close()
        return None
    return access


def _keep(address: str, access: FeedAccess, cosmos: CosmosAccess | None) -> None:
    mine = [x for x in _kept if x[0] == os.getpid()]
    before, _ = _kept.pop((os.getpid(), address), (None, None))
    if before is not None:
        before.close()
    elif len(mine) >= _MAX_IDLE:
        _kept.pop(mine[0])[0].close()
    _kept[os.getpid(), address] = access, cosmos
