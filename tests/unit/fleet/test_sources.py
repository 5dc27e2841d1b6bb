"""A fleet as its leases and its feed show it from outside."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.reshape import split
from changefeed.fleet.sources import StoreSource
from changefeed.fleet.status import FleetStatus, desired_hosts
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.looking import now


def watching(fleet: Fleet, *, clock_ahead: float = 0.0) -> StoreSource:
    """Look at a fleet from a machine whose clock may be wrong."""

    def wall() -> float:
        return 1_700_000_000.0 + clock_ahead + now()

    return make.store_source(fleet.container, fleet.feed, wall=wall)


def states(seen: FleetStatus) -> Mapping[str, str]:
    return {x.name: x.state for x in seen.hosts}


async def test_a_host_that_is_seen_to_move_is_not_dead_whatever_the_clocks_say() -> None:
    async with Fleet(ranges=1) as fleet:
        fleet.start("anna")
        await asyncio.sleep(30)
        ahead, behind = watching(fleet, clock_ahead=120), watching(fleet, clock_ahead=-120)
        first = await ahead.look(None)
        assert states(first) == {"anna": "dead"}, "by its stamp alone"
        await asyncio.sleep(15)
        second = await ahead.look(first)
        assert states(second) == {"anna": "running"}
        await fleet.kill("anna")
        await asyncio.sleep(31)
        seen = await behind.look(None)
        assert states(seen) == {"anna": "running"}
        await asyncio.sleep(31)
        assert states(await behind.look(seen)) == {"anna": "dead"}, "it has stood still"
        assert states(await ahead.look(second)) == {"anna": "dead"}


async def test_failing_ranges_say_why_and_since_when() -> None:
    async def fails(_changes: object) -> None:
        raise ValueError("no such table")

    async with Fleet(ranges=1, observer=fails) as fleet:
        fleet.append("k")
        fleet.start("anna")
        await asyncio.sleep(30)
        (seen,) = (await watching(fleet).look(None)).ranges
        health = fleet.hosts["anna"].events.activity.of(RangeId("r0")).health
        assert seen.state == "failing"
        assert "ValueError: no such table" in str(seen.note)
        assert (seen.owner, seen.since) == ("anna", health.failing_since)


async def test_what_a_range_was_split_into_is_shown_and_counted_without_a_host() -> None:
    feed = make.memory_feed(1, 10)
    async with Fleet(feed) as fleet:
        fleet.start("anna")
        await fleet.caught_up()
        await fleet.stop("anna")
        await split(make.leased(feed, fleet.container), RangeId("r0"), 2)
        for n in range(20):
            fleet.append(f"key-{n}")
        seen = await watching(fleet).look(None)
    assert (seen.total.lag, desired_hosts([seen])) == (40, 1), "each part passes over all"
    shown = [(x.state, x.lag) for x in seen.ranges]
    assert shown == [("ended", None), ("unowned", 20), ("unowned", 20)]


async def test_what_comes_again_under_its_old_name_is_shown_once() -> None:
    old, part, again = (
        make.feed_range(x, "", "FF", generation=(0, n)) for n, x in enumerate("rsr")
    )
    ends = (
        make.lease(x, at="0").ended_in(make.end(y)) for x, y in ((old, part), (part, again))
    )
    leases = await make.leases(*ends)
    seen = await make.store_source(leases, None, FeedUnavailable("away")).look(None)
    assert [(x.range, x.state) for x in seen.ranges] == [("r", "unowned"), ("s", "ended")]


class Away(MemoryFeed):
    """A feed that could be opened, and does not answer."""

    async def ranges(self) -> Sequence[FeedRange]:
        raise FeedUnavailable("no answer")


@pytest.mark.parametrize(
    ("no_feed", "shown_as"),
    [
        (FeedRefused("another one"), ("refused", "another one")),
        (FeedUnavailable("away"), ("unavailable", "away")),
        (None, ("unavailable", "no answer")),
    ],
)
async def test_a_look_shows_why_the_feed_cannot_be_read(
    no_feed: FeedError | None, shown_as: tuple[str, str]
) -> None:
    feed = None if no_feed else Away(1)
    seen = await make.store_source(MemoryLeases(), feed, no_feed).look(None)
    assert [(x.kind, x.message) for x in seen.problems] == [shown_as]


# How fast ranges get on


class Counting(MemoryFeed):
    """Its positions are numbers, a thousand changes away from the end at 0; it is far away."""

    async def ranges(self) -> Sequence[FeedRange]:
        return []

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        await asyncio.sleep(1)
        return {x.id: 1000 - int(after) for x, after in at.items() if x.id != "gone"}


async def moved(leases: MemoryLeases, name: str, to: str) -> None:
    lease = await leases.read(RangeId(name))
    assert lease is not None
    await leases.checkpoint(lease.advanced_to(Position(to)))


async def test_a_rate_is_what_was_done_by_the_seconds_between() -> None:
    places = {"r0": "0", "rests": "7", "back": "9", "gone": "0"}
    leases = await make.leases(*(make.lease(x, at=y) for x, y in places.items()))
    source = make.store_source(leases, Counting(1), rates=True)
    seen = await source.look(None)
    assert {x.rate for x in seen.ranges} == {None}
    await asyncio.sleep(10 - now())
    for name, to in {"r0": "50", "back": "3", "gone": "5"}.items():
        await moved(leases, name, to)
    await leases.create(make.lease("new", at="5"))
    rates = {x.range: x.rate for x in (await source.look(seen)).ranges}
    assert rates == {"r0": 5.0, "rests": 0.0, "back": None, "gone": None, "new": None}


async def test_a_lease_that_goes_while_it_is_looked_at_is_shown_as_it_was_listed() -> None:
    class Going(MemoryLeases):
        async def read(self, _range_id: RangeId) -> Lease | None:
            return None

    leases = Going()
    await leases.create(make.lease("r0", at="0"))
    (seen,) = (await make.store_source(leases, MemoryFeed(1)).look(None)).ranges
    assert (seen.range, seen.lag) == ("r0", None)
