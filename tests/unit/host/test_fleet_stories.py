"""Stories of real hosts over one feed and one container, told in virtual seconds."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from changefeed.feeds.feed import Change
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.child_start import ChildStart
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.observers.errors import ObserverStuck
from changefeed.observers.observer import CloseReason
from changefeed.runtime.errors import Failure
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.calls import Calls
from tests.support.logs import captured_logs
from tests.support.looking import now, start

SETTLED = 25.0  # three balancing rounds and the rebalance delay


@pytest.fixture(params=["combined", "separate"])
def container(request: pytest.FixtureRequest) -> LeaseContainer:
    if request.param == "combined":
        return MemoryLeases()
    return TwoStoreLeases(MemoryOwnership(), MemoryCheckpoints())


async def test_a_stop_that_cuts_off_an_observer_says_so_and_its_work_comes_again() -> None:
    feed, container = make.memory_feed(1, 100), MemoryLeases()
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        began = now()
        with pytest.raises(Failure, match=r"cut off \(r0\) and comes again"):
            await fleet.stop("a")
        assert 25 <= now() - began < 28
        assert set((await fleet.owners()).values()) == {None}  # no host has to wait
        assert fleet.log.delivered == []  # cancelled is not done
        fleet.start("b")
        await asyncio.sleep(101)
        assert len(fleet.log.delivered) == 100


async def test_a_lease_that_cannot_be_released_is_left_to_expire_and_reported_so() -> None:
    feed, container, cable = MemoryFeed(1), MemoryLeases(), Calls()
    async with Fleet(feed, container, settings={"host": {"stop_timeout": 5.0}}) as fleet:
        fleet.start("a", container=proxied(container, cable))
        await asyncio.sleep(5)
        cable.out = True
        with (
            captured_logs("DEBUG") as logs,
            pytest.raises(Failure, match=r"released.*\(r0\)"),
        ):
            await fleet.stop("a")
        ends = [x for x in logs if x["event"] == "lease.released"]
        assert [x["how"] for x in ends] == ["left to expire"]
        assert ends[0]["reason"].startswith("it could not be released")
        assert set((await fleet.owners()).values()) == {HostName("a")}


async def next_heartbeat(container: LeaseContainer, name: str) -> None:
    async def beats() -> list[int]:
        return [x.heartbeats for x in await container.members() if x.name == name]

    before = await beats()
    while await beats() == before:  # noqa: ASYNC110 - it is virtual time
        await asyncio.sleep(0.1)


async def test_a_host_that_restarts_under_its_name_gets_its_own_leases_and_none_moves(
    container: LeaseContainer,
) -> None:
    feed = MemoryFeed(8)
    async with Fleet(feed, container) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(SETTLED)
        await next_heartbeat(container, "b")  # it is back before that is over
        before = {x.range_id: (x.owner, x.epoch) for x in await container.list()}
        await fleet.kill("b")
        fleet.start("b")
        await asyncio.sleep(60)
        after = {x.range_id: (x.owner, x.epoch) for x in await container.list()}
        assert {x: owner for x, (owner, _) in before.items()} == {
            x: owner for x, (owner, _) in after.items()
        }
        gained = {x: after[x][1] - before[x][1] for x in after}
        assert gained == {x: int(owner == "b") for x, (owner, _) in before.items()}


async def test_start_now_is_settled_once_so_that_nothing_written_later_is_lost(
    container: LeaseContainer,
) -> None:
    feed = make.memory_feed(2, 100)
    async with Fleet(
        feed, container, pace=1000.0, settings={"feed": {"start": "now"}}
    ) as fleet:
        fleet.start("a")
        await asyncio.sleep(1)
        for n in range(40):
            feed.append(f"key-{n}")
        await asyncio.sleep(5)
        await fleet.kill("a")  # before the first checkpoint
    async with Fleet(feed, container, settings={"feed": {"start": "now"}}) as fleet:
        fleet.start("b")
        await asyncio.sleep(60)
        assert len(fleet.log.delivered) == 40


async def test_a_host_whose_supervisor_saw_the_old_process_end_has_its_leases_at_once() -> None:
    feed, container = MemoryFeed(6), MemoryLeases()
    async with Fleet(feed, container) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(SETTLED)
        before = await fleet.owners()
        dead = fleet.hosts["b"].incarnation
        await fleet.kill("b")
        start_of_b = ChildStart(
            name="b", incarnation="b-2", dead={"earlier": "", dead: "SIGKILL"}
        )
        async with Fleet(feed, container) as restarted:
            again = restarted.start("b", start=start_of_b)
            await asyncio.sleep(1)
            assert await fleet.owners() == before
            assert len(again.leases) == 3


async def test_a_stuck_observer_stops_its_host_and_its_lease_expires_to_another() -> None:
    stuck, let_go = asyncio.Event(), asyncio.Event()

    async def hears_no_cancellation(changes: Sequence[Change]) -> None:
        if changes[0].range_id == "r0" and changes[0].sequence == 3 and not stuck.is_set():
            stuck.set()
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await let_go.wait()

    parts: Sections = {"observer": {"timeout": 1}, "feed": {"page_size": 2}}
    feed = make.memory_feed(2, 40)
    async with Fleet(feed, observer=hears_no_cancellation, settings=parts) as fleet:
        fleet.start("a")
        with captured_logs() as logs, pytest.raises(ObserverStuck, match="'r0' is stuck: 'pro"):
            await fleet.running.pop("a")
        assert "observer.stuck" in [x["event"] for x in logs]
        del fleet.hosts["a"]
        assert await fleet.owners() == {"r0": "a", "r1": None}
        assert fleet.log.closed == [("a", "r1", CloseReason.STOPPING)]
        fleet.start("b")
        await asyncio.sleep(20)
        assert await fleet.owners() == {"r0": "a", "r1": "b"}
        await asyncio.sleep(20)
        assert (len(fleet.log.times), fleet.log.repeats) == (40, 0)
        assert {host for host, *at in fleet.log.delivered if at == ["r0", 3]} == {"b"}
        let_go.set()
