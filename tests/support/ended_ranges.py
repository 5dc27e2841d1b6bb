"""The end of a range, as its reader writes it into the leases of what it goes on in."""

from collections.abc import Awaitable, Callable
from random import Random

from changefeed.feeds.feed import Continuation, Feed, FeedRange, Successor
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.workers.successors import create_successors
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from tests.support.partless_feed import PartlessFeed


async def _owned() -> None:
    """Have shown that the lease is ours."""


async def end_range(
    leases: LeaseContainer,
    ended: FeedRange,
    *successors: FeedRange,
    at: str = "9",
    feed: Feed | None = None,
    check: Callable[[], None] = lambda: None,
    prove: Callable[[], Awaitable[None]] = _owned,
) -> None:
    """Create the leases of what an ended range goes on in, all at one position."""
    events = HostEvents(HostName("a"))
    await create_successors(
        ended,
        [Successor(range=x, start=Continuation(at)) for x in successors],
        feed=PartlessFeed(1) if feed is None else feed,
        container=leases,
        retrier=Retrier(events, Random(1)),
        events=events,
        check=check,
        prove=prove,
    )
