"""Access to feeds, and to items, that a process of Spark keeps open from one use to the next.

To open a container of Cosmos DB takes a client and some requests: as long as two pages of it
take. A worker of Spark runs task after task, and a planner plans batch after batch, so each
opens a container once. What a use has failed with is closed, and so is what it has left
before its end.
"""

import atexit
import os
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.errors import UserError
from changefeed.runtime.garbage import freeze_startup_objects


class Opened(Protocol):
    """What is known by an identity, if it still has ranges."""

    def identity(self) -> str: ...

    def ranges(self) -> Sequence[FeedRange]: ...

    def close(self) -> None: ...


T = TypeVar("T", bound=Opened)
_Key: TypeAlias = tuple[int, Hashable]

_MAX_IDLE: Final = 2
"""Feeds that stay open while nobody reads them: those of the queries that take turns."""

_kept: Final[dict[_Key, tuple[Opened, CosmosAccess | None]]] = {}
"""By process, for a fork of one has its event loops without the threads that run them."""


@contextmanager
def kept_access(
    address: str,
    cosmos: CosmosAccess | None = None,
    *,
    only: Collection[RangeId] = (),
    feed: str = "",
) -> Iterator[Access]:
    """Yield access to a feed, as ``kept_open`` does."""
    opening = partial(open_access, address, only, cosmos=cosmos)
    with kept_open((address, *only), opening, cosmos, feed=feed) as access:
        yield access


@contextmanager
def kept_open(
    name: Hashable, opening: Callable[[], T], cosmos: CosmosAccess | None, *, feed: str = ""
) -> Iterator[T]:
    """Yield what ``opening`` returns, to this caller alone. Raise what it raises.

    What was opened by other credentials is not lent out. Nor is a container that was recreated
    since: one with another identity than ``feed``, or that is not there, if none is given.
    """
    key = os.getpid(), name
    found = cast("T | None", _taken(key, cosmos, feed))  # of one name all have one type
    opened = opening() if found is None else found
    try:
        yield opened
    except BaseException:
        opened.close()
        raise
    freeze_gc()
    if opened.identity():
        _keep(key, opened, cosmos)
    else:
        opened.close()


@atexit.register
def close_kept() -> None:
    """Close what nobody reads now."""
    for key in [x for x in _kept if x[0] == os.getpid()]:
        _kept.pop(key)[0].close()


def _taken(key: _Key, cosmos: CosmosAccess | None, feed: str) -> Opened | None:
    access, opened_by = _kept.pop(key, (None, None))
    if access is None or (opened_by == cosmos and _is_there(access, feed)):
        return access
    access.close()
    return None


def _is_there(access: Opened, feed: str) -> bool:
    if feed:
        return access.identity() == feed
    with suppress(FeedError, UserError):
        access.ranges()
        return True
    return False


def _keep(key: _Key, access: Opened, cosmos: CosmosAccess | None) -> None:
    mine = [x for x in _kept if x[0] == os.getpid()]
    before, _ = _kept.pop(key, (None, None))
    if before is not None:
        before.close()
    elif len(mine) >= _MAX_IDLE:
        _kept.pop(mine[0])[0].close()
    _kept[key] = access, cosmos


def freeze_gc() -> None:
    """Spare what was imported from the garbage collector, once for each import.

    Spark's processes collect after all they do, which else takes longer than a small task. To
    open a feed and to read it import what the source alone has not.
    """
    _frozen(len(sys.modules))


@cache
def _frozen(_modules: int) -> None:
    freeze_startup_objects()
