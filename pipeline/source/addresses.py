"""From the address of a feed to what planners and tasks need of it."""

import asyncio
import math
from collections.abc import Collection
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from changefeed.feeds.addresses import FEEDS, STORES, open_feed
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.address_options import read_options, write_options
from changefeed.runtime.backends import Address
from changefeed.runtime.errors import UserError

if TYPE_CHECKING:
    from changefeed.pipeline.source.collection_reader import CollectionAccess

_EVENT_LOG = "eventlog"
_COLLECTIONS = (_EVENT_LOG, "brokers", "store")
_ALL_VERSIONS = "all-versions"
_WITH_ACCOUNT = "cosmos"
_BUDGET: Final = "max_ru"
_UNITS_OF_A_TASK: Final = 2_000
"""Request units a second that a task spends, about: it waits for one page after the other."""


def open_access(
    address: str, only: Collection[RangeId] = (), *, cosmos: CosmosAccess | None = None
) -> Access:
    """Return access to the feed at an address; the caller closes it.

    ``only`` are the ranges that are wanted, with what descends from them; all, if empty.
    ``cosmos`` opens an account of Cosmos DB; without it, the environment says what does.
    Raise ``FeedRefused``, with advice, for an address that leads to no feed.
    """
    backend, where = FEEDS.find(address)
    if backend.name in _COLLECTIONS:
        return _collection(where, only)
    if backend.positions is None:
        open_feed(address)  # raises, with advice, where the address is wrong
        raise FeedRefused(f"{address!r}: the positions of this feed cannot be put in order")
    options = None if cosmos is None else OpenOptions(cosmos=cosmos)
    return FeedAccess(partial(open_feed, address, options), backend.positions(), only=only)


def _collection(where: Address, only: Collection[RangeId]) -> "CollectionAccess":
    # Here, since these need pyarrow, and commands that import this module do not.
    from changefeed.pipeline.source import stored_reader as stored  # noqa: PLC0415

    if where.scheme == _EVENT_LOG:
        return stored.StoredAccess(partial(stored.open_log, where.place), only=only)
    if where.scheme in STORES:
        return stored.StoredAccess(partial(stored.open_stored, where), only=only)
    from changefeed.pipeline.source.brokers_reader import through_brokers  # noqa: PLC0415
    from changefeed.pipeline.source.collection_reader import CollectionAccess  # noqa: PLC0415

    return CollectionAccess(partial(through_brokers, where), only=only)


def identity_at(address: str) -> str:
    """Return the identity of the feed at an address."""
    backend, where = FEEDS.find(address)
    if backend.name in _COLLECTIONS:
        with closing(_collection(where, ())) as access:
            return access.log

    async def ask() -> str:
        async with open_feed(address) as feed:
            return feed.identity

    return asyncio.run(ask())


def with_mode(address: str, mode: str) -> str:
    """Return the address at which a feed is read in a mode: ``latest-version`` or
    ``all-versions``. Raise ``UserError`` for a feed that has no such mode.
    """
    backend, where = FEEDS.find(address)
    if len(backend.modes) <= 1:
        if mode in (backend.modes or (_ALL_VERSIONS,)):
            return address
        raise UserError(
            f"mode={mode!r}: {where.scheme!r} has all versions only; leave mode out, or write "
            f"{_ALL_VERSIONS}"
        )
    return _with(address, "mode", mode, said="mode")


def with_beginning(address: str) -> str:
    """Return the address at which a feed has a beginning: in the first of several modes."""
    backend, _ = FEEDS.find(address)
    if len(backend.modes) <= 1:
        return address
    place, options = read_parts(address)
    return f"{place}?{write_options({**options, 'mode': backend.modes[0]})}"


def with_share(address: str, name: str, value: str, *, said: str) -> str:
    """Return the address at which a feed is read with a share of its account.

    ``name`` is that of the share in an address, ``said`` what the user calls it. Raise
    ``UserError`` for a feed that has no account, and for a share that is said twice.
    """
    require_account(address, said)
    return _with(address, name, value, said=said)


def require_account(address: str, said: str) -> None:
    """Raise ``UserError`` for a feed that has no account, of which ``said`` speaks."""
    backend, where = FEEDS.find(address)
    if backend.name != _WITH_ACCOUNT:
        raise UserError(
            f"{said}: {where.scheme!r} has no account. Leave {said} out; it is for Cosmos DB"
        )


def _with(address: str, name: str, value: str, *, said: str) -> str:
    place, options = read_parts(address)
    if options.setdefault(name, value) != value:
        raise UserError(f"{said}={value!r}, but the feed is {address!r}: say it once")
    return f"{place}?{write_options(options)}"


def read_parts(address: str) -> tuple[str, dict[str, str]]:
    """Return the place of an address, and the options behind it."""
    place, _, query = address.partition("?")
    return place, read_options(query)


def most_tasks(address: str) -> int | None:
    """Return how many tasks a batch may have; ``None`` for any number.

    With a budget it has no more than can spend it. So all of them are likely to run at once,
    each with its part of the budget: however many run, none of it is exceeded.
    """
    budget = _budget(address)
    return None if budget is None else math.ceil(budget / _UNITS_OF_A_TASK)


def of_a_task(address: str, tasks: int) -> str:
    """Return the address at which one of so many tasks reads: it has its part of the budget."""
    budget = _budget(address)
    if budget is None:
        return address
    place, options = read_parts(address)
    return f"{place}?{write_options({**options, _BUDGET: str(budget / tasks)})}"


def _budget(address: str) -> float | None:
    """Return the budget, if it can be read; opening the feed says what is wrong with it."""
    backend, _ = FEEDS.find(address)
    given = read_parts(address)[1].get(_BUDGET) if backend.name == _WITH_ACCOUNT else None
    with suppress(ValueError):
        if given is not None and 0 < (budget := float(given)) < math.inf:
            return budget
    return None


def absolute(address: str) -> str:
    """Return the address as processes in another working directory need it."""
    backend, where = FEEDS.find(address)
    return f"{where.scheme}:{backend.absolute(where.place)}"
