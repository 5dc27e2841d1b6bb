"""Parts of the ranges of a log: they end with their range, and what follows waits for all."""

from collections.abc import Sequence

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.parts.leased_feed import LeasedFeed
from changefeed.host.parts.merging import merge
from changefeed.host.parts.splitting import split
from changefeed.host.settings import LeaseSettings
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.operations.update import update_lease
from tests.support.ended_ranges import end_range
from tests.support.looking import lease_in

R0, R1 = RangeId("r0"), RangeId("r1")
SETTINGS = LeaseSettings(expiration=30, renew_interval=10, max_handoff_time=10)


def leased(feed: MemoryFeed, container: MemoryLeases) -> LeasedFeed:
    return LeasedFeed(feed=feed, container=container, settings=SETTINGS)


async def end_lower_part(feed: MemoryFeed, container: MemoryLeases) -> Sequence[FeedRange]:
    """Merge r0 and r1 into r2, and read the lower part of r0, of two, to its end."""
    first, second = [x for x in await feed.ranges() if x.id in (R0, R1)]
    parts = feed.cut(first, 2)
    for x in (*parts, second):
        await container.create(Lease(range=x, continuation=Continuation("0"), epoch=1))
    followed = feed.merge(R0, R1)
    await end_range(container, parts[0], followed, at="0", feed=feed)
    await update_lease(container, parts[0].id, Lease.finished)
    return parts


async def parents_of(container: MemoryLeases, name: str) -> set[RangeId]:
    lease = await lease_in(container, name)
    return set(lease.range.parents)


async def test_what_follows_a_range_waits_for_all_its_parts() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    parts = await end_lower_part(feed, container)
    assert await parents_of(container, "r2") == {R1, *(x.id for x in parts)}


async def test_what_waits_for_a_part_waits_for_the_parts_it_is_split_into() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    lower, upper = await end_lower_part(feed, container)
    made = await split(leased(feed, container), upper.id, 2)
    waited_for = await parents_of(container, "r2")
    assert waited_for == {R1, lower.id, upper.id, *(x.id for x in made)}


async def test_what_waits_for_parts_waits_for_what_they_are_merged_into() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    _, upper = await end_lower_part(feed, container)
    made = (await split(leased(feed, container), upper.id, 3))[:2]
    for x in made:
        await update_lease(
            container, x.id, lambda y: y.taken_by(HostName("a"), Incarnation("1")).released()
        )
    merged = await merge(leased(feed, container), [x.id for x in made], patience=0)
    assert merged.id in await parents_of(container, "r2")
