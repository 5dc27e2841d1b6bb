"""Which leases a host creates and deletes; the rules are the key map's (``test_keymap``)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import Feed, FeedRange, Position, RangeId, StartAt
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Incarnation, RangeEnd
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.proxies import FailingCall, proxied
from tests.support import make
from tests.support.calls import Calls
from tests.support.coordinating import coordinating, tend
from tests.support.looking import lease_in
from tests.support.partless_feed import PartlessFeed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

R0, R1, R2, R3 = (RangeId(f"r{n}") for n in range(4))
A, A1 = HostName("a"), Incarnation("a-1")
LONG_AGO = datetime.fromtimestamp(0, UTC)


async def looked(
    feed: Feed, leases: LeaseContainer, seconds: float = 1, *, begin: int = 1, **settings: Any
) -> list[str]:
    """Let a host look for so long; return of which ranges there are open leases then."""
    parts = {"feed": settings, "timing": {"ranges_interval": 5}}
    await tend(leases, seconds, feed=feed, parts=parts, chance=begin, every=0.3)
    return sorted(x.range_id for x in await leases.list() if not x.ended)


async def begun(leases: LeaseContainer) -> None:
    """Let a host own each lease once."""
    for x in await leases.list():
        if not (x.epoch or x.ended):
            taken = await leases.acquire(x.taken_by(A, A1))
            await leases.replace(taken.released())


async def test_what_is_over_by_the_start_is_left_out_but_for_kin_of_what_is_not() -> None:
    feed = MemoryFeed(2)
    feed.begin_era(2)
    assert await looked(feed, MemoryLeases(), start="beginning") == ["r0", "r1"]
    assert await looked(feed, MemoryLeases(), start="now") == ["r2", "r3"]
    shared = MemoryFeed(2)
    shared.close(R0, 1)  # r2 has its keys
    assert await looked(shared, MemoryLeases(), start="now") == ["r1", "r2"]
    empty = MemoryFeed(1)
    empty.append("k")
    empty.begin_era(1)  # it has no change, and goes on from one that is not over
    empty.begin_era(1)
    assert await looked(empty, MemoryLeases(), start=LONG_AGO) == ["r0"]


@pytest.mark.parametrize("foreign", [False, True])
async def test_what_was_created_late_is_deleted_unless_another_processor_made_it(
    *, foreign: bool
) -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await looked(feed, leases)
    await begun(leases)
    half = feed.split((await feed.ranges())[0], 2)[0]
    stamp = 1.0 if foreign else None
    await leases.create(make.lease(half, at="0", stamp=stamp))
    assert (half.id in await looked(feed, leases)) == foreign


class Asked(MemoryFeed):
    """It has no start of one range, and says of others what it was asked for."""

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        if found.id == R0:
            raise RangeRefused(R0, "it is damaged")
        return Position(str(at))


async def test_a_range_without_a_start_keeps_no_other_from_its_lease() -> None:
    assert await looked(Asked(2), MemoryLeases(), 60) == ["r1"]


async def test_no_gap_begins_before_the_fleet_does() -> None:
    cut = FailingCall(FeedUnavailable("busy"), at=1, only=lambda x: x == "start")
    feed = proxied(MemoryFeed(1), cut)
    (whole,) = await feed.ranges()
    async with coordinating(MemoryLeases(), feed=feed) as (_, discovery):
        discovery.begins = True
        discovery.look([whole])
        with pytest.raises(FeedUnavailable):
            await discovery._look()
        await discovery._look()
        assert discovery.root is not None


async def test_no_root_is_settled_over_leases_that_another_processor_writes_meanwhile() -> None:
    leases = MemoryLeases()

    async def written() -> None:
        await leases.create(make.lease("r0", at="0", stamp=1.0))
        await asyncio.sleep(1)

    feed = proxied(MemoryFeed(1), Calls(first={"start": written}))
    await looked(feed, leases, 20)
    assert (await leases.fleet()).root is None


@pytest.mark.parametrize(
    ("inherits", "start", "keys", "generation", "begins"),
    [
        (True, "now", "04", 1, "1"),  # where they began with the fleet
        (True, "now", "0C", 1, "beginning"),  # later than each of two starts
        (True, LONG_AGO, "0C", 1, str(LONG_AGO)),
        (True, "now", "CF", 1, "now"),  # which the fleet did not begin with
        (False, "now", "04", 0, "now"),  # somebody deleted the lease
    ],
)
async def test_a_gap_begins_no_later_than_its_keys_do(
    *, inherits: bool, start: StartAt, keys: str, generation: int, begins: str
) -> None:
    low, high = make.feed_range("low", "0", "8"), make.feed_range("high", "8", "C")
    gap = make.feed_range("gap", *keys, generation=(generation, 0))
    parts = {"feed": {"start": start}}
    async with coordinating(MemoryLeases(), feed=Asked(1), parts=parts) as (_, discovery):
        both = (*make.end(low, at="1").children, *make.end(high, at="2").children)
        discovery.root = RangeEnd(children=both)
        discovery.ranges = replace(discovery.ranges, inherits=inherits)
        assert await discovery._start_of(gap) == begins
        discovery.root = make.end(gap, at="1")
        part = replace(gap, id=RangeId("part"), of=gap.id, generation=(generation, 1))
        assert await discovery._start_of(part) == "1"  # where its range began with the fleet


async def test_hosts_that_start_together_create_many_leases_between_them() -> None:
    leases, feed, hosts = MemoryLeases(), MemoryFeed(250), 5
    slow = Calls(lasting={"create": 0.01, "list_fleet": 0.01})
    await asyncio.gather(
        *(looked(feed, proxied(leases, slow), 10, begin=n) for n in range(hosts))
    )
    assert len(await leases.list()) == 250
    assert slow.count["create"] < 0.7 * 250 * hosts


@pytest.mark.parametrize(
    ("parallelism", "created"),
    [
        (1, ["1", "2"]),
        (2, ["1", "2"]),
        (3, ["-3F", "3F-7F", "7F-BF", "BF-FF"]),
        (5, ["-2A", "2A-54", "54-7F", "7F-A9", "A9-D4", "D4-FF"]),
    ],
)
async def test_the_first_leases_are_of_parts_where_more_ranges_are_asked_for(
    parallelism: int, created: list[str]
) -> None:
    store, leases = ShiftingStore(), MemoryLeases()
    store.split(RangeId("0"))
    assert await looked(ShiftingReader(store), leases, parallelism=parallelism) == created
    await begun(leases)
    assert await looked(ShiftingReader(store), leases, parallelism=64) == created


class Forgetting(MemoryFeed):
    """It lists no range that has ended, as a log whose retention took them."""

    async def ranges(self) -> Sequence[FeedRange]:
        found = await super().ranges()
        ended = {y for x in found for y in x.parents}
        return [x for x in found if x.id not in ended]


async def test_keys_whose_lease_was_deleted_begin_with_their_range() -> None:
    feed, leases = Forgetting(1), MemoryLeases()
    feed.append("k0", b"")
    await looked(feed, leases, start="now")
    await begun(leases)
    feed.split_range(R0)
    low, high = await feed.ranges()
    await make.end_in(leases, R0, low, high, at="1")
    await looked(feed, leases, 15, start="now")
    await begun(leases)
    await looked(feed, leases, 15, start="now")
    for n in range(8):
        feed.append(f"k{n}", b"")
    await leases.delete(await lease_in(leases, high.id))
    await looked(feed, leases, 90, start="now")
    assert (await lease_in(leases, high.id)).position == "0"


async def test_a_feed_that_reads_no_parts_refuses_more_ranges_than_it_has() -> None:
    leases = MemoryLeases()
    with pytest.raises(FeedRefused, match=r"feed\.parallelism is 4"):
        await looked(PartlessFeed(3), leases, parallelism=4)
    assert len(await looked(PartlessFeed(3), leases, parallelism=3)) == 3
    assert len(await looked(PartlessFeed(3), leases, parallelism=4)) == 3


async def test_a_part_that_comes_back_under_its_name_goes_on_above_its_epochs() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await looked(feed, leases)
    (whole,) = await feed.ranges()
    low, high = feed.split(whole, 2)
    await begun(leases)
    await make.end_in(leases, R0, low, high, at="1")
    await looked(feed, leases)
    await begun(leases)
    joined = feed.merge([low, high])
    await make.end_in(leases, low.id, joined, at="2")
    await make.end_in(leases, high.id, joined, at="2")
    await looked(feed, leases)
    await begun(leases)
    again = feed.split(joined, 2)
    assert [x.id for x in again] == [low.id, high.id]
    await make.end_in(leases, joined.id, *again, at="3")
    assert await looked(feed, leases) == sorted([low.id, high.id])
    back = await lease_in(leases, low.id)
    assert (back.position, back.epoch >= 1, back.range.generation) == ("3", True, (0, 3))
    assert back.write_id is not None  # else who wrote the end takes this for its own write
