"""Ranges that hosts split by themselves, because one of them alone has too much of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet, Sections
from tests.support.looking import in_order, lease_in, start, until
from tests.support.partless_feed import PartlessFeed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

ZERO = RangeId("0")
COOLDOWN = 20.0
HOT: Sections = {
    "leases": {"balance": "split"},
    "timing": {"cooldown": COOLDOWN, "rebalance_delay": 2.0},
    "feed": {"start": "beginning", "page_size": 10, "poll_interval": 1.0},
}


def written(changes: int) -> ShiftingStore:
    store = ShiftingStore()
    for n in range(changes):
        store.append(f"k{n % 40}", b"%d" % n)
    return store


def hot_fleet(store: ShiftingStore, container: MemoryLeases, **more: Any) -> Fleet:
    return Fleet(ShiftingReader(store), container, settings=HOT, **{"pace": 0.05, **more})


async def sent(fleet: Fleet, changes: int, *, within: float) -> None:
    await until(lambda: len(fleet.log.changes) >= changes, within=within)


async def settled(fleet: Fleet, hosts: str) -> Mapping[RangeId, HostName | None]:
    """Wait until each of the hosts owns something, and everything has an owner."""
    while set((owners := await fleet.owners()).values()) != {*hosts}:  # noqa: ASYNC110 - no event
        await asyncio.sleep(1)
    return owners


async def test_a_range_that_is_too_much_for_one_host_is_split_and_shared() -> None:
    store, container = written(3000), MemoryLeases()
    async with hot_fleet(store, container) as fleet:
        start(fleet, "abc")
        await asyncio.sleep(COOLDOWN)
        assert set(await fleet.owners()) == {ZERO}  # it may only be behind
        await sent(fleet, 3000, within=110 - COOLDOWN)  # 150 s of work for one
        async with asyncio.timeout(60):
            owners = await settled(fleet, "abc")
        assert (len(fleet.log.changes), fleet.log.repeats) == (3000, 0)
        assert in_order(fleet.log.changes)
        assert 3 <= len(owners) <= 6
        assert set(owners.values()) == {"a", "b", "c"}
        closed = [x for x in fleet.log.closed if x[1] == ZERO]
        assert [reason for _, _, reason in closed] == [CloseReason.RANGE_ENDED]


class Later:
    """Acknowledges each batch when the next one is there."""

    def __init__(self) -> None:
        self._before: Change | None = None

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self._before is not None:
            context.acknowledge(self._before)
        self._before = changes[-1]


async def test_a_range_with_something_unacknowledged_is_read_on_whole() -> None:
    store, container = written(2000), MemoryLeases()
    manual: Sections = {**HOT, "observer": {"checkpoint": "manual"}}
    fleet = Fleet(ShiftingReader(store), container, settings=manual, observer=Later, pace=0.05)
    async with fleet:
        start(fleet, "ab")
        await sent(fleet, 2000, within=150)
        assert fleet.log.repeats == 0
        assert set(await fleet.owners()) == {ZERO}


class Disturbed(MemoryLeases):
    """Another host asks for a range just before its first end is written."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Lease] = []

    async def replace(self, lease: Lease) -> Lease:
        if lease.ended and not self.ended:
            self.ended.append(lease)
            stored = await lease_in(self, lease.range_id)
            await super().replace(stored.requested_by(HostName("z")))
        written = await super().replace(lease)
        if lease.ended:
            self.ended.append(await lease_in(self, lease.range_id))
        return written


async def test_an_end_that_others_write_before_is_written_again_where_the_range_was_left() -> (
    None
):
    store, container = written(2000), Disturbed()
    async with hot_fleet(store, container) as fleet:
        start(fleet, "ab")
        await sent(fleet, 2000, within=150)
        assert (fleet.log.repeats, in_order(fleet.log.changes)) == (0, True)
    tried, ended = container.ended[:2]
    assert tried.end == ended.end is not None
    assert ended.end.by == "split"
    assert {x.start for x in ended.end.children} == {ended.position}
    assert ended.next_owner is None


async def test_a_feed_without_parts_is_read_whole() -> None:
    feed = PartlessFeed(1)
    for n in range(1500):
        feed.append(f"k{n % 40}", b"%d" % n)
    async with Fleet(feed, settings=HOT, pace=0.05) as fleet:
        start(fleet, "ab")
        await sent(fleet, 1500, within=100)
        assert fleet.log.repeats == 0
        assert len(await fleet.owners()) == 1
