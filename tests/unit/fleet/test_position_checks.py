"""Documents of positions that do not fit their feed are refused, with each wrong entry."""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Child, FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.position_checks import refuse_wrong_positions
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import Lease, RangeEnd
from changefeed.leases.position_file import read_document, written
from changefeed.runtime.errors import StoreRefused
from tests.support import make


async def a_feed() -> tuple[MemoryFeed, list[Lease]]:
    """Return a feed whose r0 was split into r2 and r3, and leases as hosts keep them."""
    feed = MemoryFeed(2)
    for n in range(20):
        feed.append(str(n))
    feed.split_range(RangeId("r0"))
    leases = list[Lease]()
    for x in await feed.ranges():
        at = await feed.start(x, "now")
        leases.append(make.lease(x, at=at, epoch=1))
    children = tuple(
        Child(range=x.range, start=Position("0")) for x in leases if "r0" in x.range.parents
    )
    leases[0] = leases[0].ended_in(RangeEnd(children=children))
    return feed, leases


async def refuse_wrong(feed: MemoryFeed, leases: Sequence[Lease], identity: str = "") -> None:
    document = read_document(written(leases, feed=identity))
    await refuse_wrong_positions(document, feed, start="beginning")


def at(lease: Lease, position: str) -> Lease:
    return replace(lease, checkpoint=Checkpoint.of_text(position))


def bounded(lease: Lease, low: str, high: str) -> Lease:
    return replace(lease, range=dataclasses.replace(lease.range, low=low, high=high))


Edit = Callable[[list[Lease]], list[Lease]]


async def test_what_hosts_keep_is_given_back() -> None:
    feed, leases = await a_feed()
    await refuse_wrong(feed, leases, feed.identity)
    await refuse_wrong(feed, leases[:2])  # its children are yet to come
    await refuse_wrong(feed, [replace(leases[0], end=None), leases[1]])


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda _: [], "no positions"),
        (lambda x: [x[0], *x[2:]], "no lease holds the keys"),
        (lambda x: [*x, make.lease("r9", at="0")], "'r9': the feed has no such range"),
        (lambda x: [*x[:-1], at(x[-1], "9999")], "'r3': .*9999"),
        (lambda x: [*x[:-1], at(x[-1], "one")], "'r3': .*one"),
        (lambda x: [*x[:-1], make.closed(x[-1])], "'r3' has not ended"),
        (lambda x: [replace(x[0], end=None), *x[1:]], "r0 .*r2 .*overlap"),
        (lambda x: [*x[:-1], bounded(x[-1], "80", "81")], "range 'r3' has the keys from '80'"),
        (lambda x: [*x[:-1], bounded(x[-1], "81", "80")], "'r3' end .* before they begin"),
    ],
    ids=[
        "empty", "cut short", "of no range", "beyond the end", "no position", "ended too early",
        "beside its parent", "other keys", "keys the wrong way round",
    ],
)  # fmt: skip
async def test_an_entry_that_is_wrong_is_named(edit: Edit, says: str) -> None:
    feed, leases = await a_feed()
    with pytest.raises(StoreRefused, match=says):
        await refuse_wrong(feed, edit(leases))


async def test_the_same_range_twice_and_another_feed_are_refused() -> None:
    feed, leases = await a_feed()
    document = read_document(written(leases))
    twice = msgspec.structs.replace(
        document, positions=(*document.positions, document.positions[1])
    )
    with pytest.raises(StoreRefused, match="'r1' is there 2 times"):
        await refuse_wrong_positions(twice, feed, start="now")
    with pytest.raises(StoreRefused, match=r"another feed .*theirs"):
        await refuse_wrong(feed, leases, "theirs")


async def test_a_feed_that_does_not_answer_judges_nothing() -> None:
    class Away(MemoryFeed):
        async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
            raise FeedUnavailable(f"away: {limit} of {found.id} after {after}")

    feed = Away(1)
    leases = [make.lease(x, at="0") for x in await feed.ranges()]
    with pytest.raises(FeedUnavailable):
        await refuse_wrong(feed, leases)
