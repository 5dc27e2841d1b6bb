"""The lag of ranges that no host reads: who reports it, and of which ranges."""

import asyncio
from collections.abc import Collection

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.claims import pause, resume
from changefeed.host.unread_ranges import reporter, unread_ranges
from changefeed.leases.expiry import Moment
from changefeed.leases.fleet import Fleet as Seen
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, newest
from changefeed.testing import Fleet
from tests.support import make
from tests.support.looking import start

NAMES = ("a", "b", "c")
R0 = RangeId("r0")


def lease(name: str, owner: str | None = None, *, parents: tuple[str, ...] = ()) -> Lease:
    found = FeedRange(id=RangeId(name), parents=tuple(RangeId(x) for x in parents))
    return Lease(range=found, owner=None if owner is None else HostName(owner))


def view(
    *leases: Lease,
    members: Collection[str] = NAMES,
    dead: Collection[str] = (),
    stopping: Collection[str] = (),
    foreign: Collection[str] = (),
) -> Seen:
    recorded = [
        Member(name=HostName(x), incarnation=Incarnation(x), stopping=x in stopping)
        for x in members
    ]
    fleet = frozenset(map(HostName, {*members, *foreign} - {*dead, *stopping}))
    return Seen(
        leases=newest(leases),
        members={x.name: x for x in recorded},
        lives={},
        expired=frozenset(),
        dead=frozenset(map(HostName, dead)),
        alive=fleet,
        shared=bool(foreign),
        at=Moment(asked=0.0, answered=0.0, wall=0.0),
        next_expiry=None,
    )


def test_the_living_member_with_the_lowest_name_reports() -> None:
    assert reporter(view()) == "a"
    assert reporter(view(dead=["a"])) == "b"
    assert reporter(view(dead=["a"], stopping=["b"])) == "c"
    assert reporter(view(dead=NAMES)) is None
    assert reporter(view(members=["m"], foreign=["a"])) == "m"


def test_each_range_without_a_living_reader_is_listed_with_the_reason() -> None:
    found = view(
        make.lease(make.feed_range("read", "0", "8"), "a"),
        lease("stops", "b"),
        lease("dead", "c"),
        lease("foreign", "net"),
        lease("free"),
        make.lease(make.feed_range("late", "0", "4")),
        lease("paused").paused_because("bad data"),
        lease("draining", "a").paused_because("bad data"),
        lease("over").ended_in(make.CLOSED),
        dead=["c"],
        stopping=["b"],
        foreign=["net"],
    )
    assert unread_ranges(found, KeyMap(found.leases.values()).readable()) == {
        "dead": "unowned",
        "foreign": "foreign",
        "free": "unowned",
        "late": "waiting",
        "paused": "paused",
    }


async def test_one_host_reports_a_paused_range_and_the_next_when_that_is_gone() -> None:
    loop = asyncio.get_running_loop()
    feed = MemoryFeed(2, clock=lambda: 1_700_000_000 + loop.time())
    async with Fleet(feed) as fleet:
        start(fleet, NAMES)
        await fleet.balanced()
        await pause(fleet.container, [R0], "bad data")
        await asyncio.sleep(20)
        for n in range(40):
            feed.append(f"key-{n}")
        of_r0 = await lag_of(feed, FeedRange(id=R0), Continuation("0"))
        await asyncio.sleep(60)
        assert reports(fleet) == {"a": {"r0": of_r0}, "b": {}, "c": {}}
        # Measured up to ranges_interval ago.
        assert fleet.hosts["a"].unread_lags[R0].seconds == pytest.approx(45, abs=16)
        await fleet.kill("a")
        await asyncio.sleep(90)
        assert reports(fleet) == {"b": {"r0": of_r0}, "c": {}}
        await resume(fleet.container, [R0])
        await asyncio.sleep(20)
        assert reports(fleet) == {"b": {}, "c": {}}


def reports(fleet: Fleet) -> dict[str, dict[str, int]]:
    return {
        name: {x: lag.changes for x, lag in host.unread_lags.items()}
        for name, host in fleet.hosts.items()
    }
