"""What a worker waits for when it winds down, and what it delivers no more."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.claims import pause
from changefeed.host.calls import Drain
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet, Sections
from tests.support import make
from tests.support.handed import Handed, fleet_of, handed_to
from tests.support.looking import lease_in, now, until

MANUAL = {"observer": {"checkpoint": "manual"}}


class Later(Handed):
    """Acknowledges each change some seconds after it was handed over, one by one."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._tasks: list[asyncio.Task[None]] = []

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        self._tasks.append(asyncio.create_task(self._acknowledge(context, changes)))

    async def _acknowledge(self, context: Context, changes: Sequence[Change]) -> None:
        for change in changes:
            await asyncio.sleep(self._seconds)
            context.acknowledge(change)


async def test_a_stop_waits_for_what_is_not_acknowledged_yet_and_stores_it() -> None:
    observer = Later(1.0)
    async with handed_to(observer, 5, MANUAL) as running:
        await until(lambda: len(observer.changes) == 5)
        await running.stop("a")
        assert (await lease_in(running.container)).position == "5"
        running.start("a")
        await asyncio.sleep(60)
        assert observer.sequences == [1, 2, 3, 4, 5]


async def test_a_pause_waits_for_what_is_not_acknowledged_yet_and_is_told_so() -> None:
    observer = Later(4.0)
    async with handed_to(observer, 5, MANUAL) as running:
        await until(lambda: len(observer.changes) == 5)
        await pause(running.container, [RangeId("r0")], "for a test")
        await asyncio.sleep(60)
        lease = await lease_in(running.container)
        assert (lease.owner, lease.position) == (None, "5")
        assert observer.reasons == [CloseReason.PAUSED]


async def test_a_handoff_waits_for_acknowledgements_no_longer_than_it_may_take() -> None:
    """With the default of ``leases.expiration``, a forced steal would come 30 s later."""
    feed, container, observer = make.memory_feed(2, 20), MemoryLeases(), Handed()
    parts: Sections = {**MANUAL, "leases": {"max_handoff_time": 3.0}}
    async with fleet_of(lambda: observer, feed, container, parts) as running:
        running.start("a")
        await asyncio.sleep(15)
        running.start("b")
        await asyncio.sleep(60)
        assert await running.loads() == {"a": 1, "b": 1}
        assert observer.reasons == [CloseReason.HANDED_OVER]


async def test_a_drain_that_had_no_deadline_gets_one_later() -> None:
    drain = Drain()

    call = asyncio.create_task(drain.bounded(asyncio.sleep(100)))
    drain.begin(CloseReason.STOPPING, within=None)
    await asyncio.sleep(1)
    began = now()
    drain.begin(CloseReason.HANDED_OVER, within=3)
    with pytest.raises(TimeoutError):
        await call
    assert (now() - began, drain.reason) == (3, CloseReason.STOPPING)


class Slow(Handed):
    """Takes eight seconds, notes what it has heard of a drain by then, and fails at a key."""

    def __init__(self, fails_on: str = "") -> None:
        super().__init__()
        self._fails_on = fails_on
        self.heard: list[bool] = []

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        if any(x.key == self._fails_on for x in changes):
            raise ValueError
        await asyncio.sleep(8)
        self.heard.append(context.handing_over)


async def test_a_stop_gives_an_observer_more_time_than_a_handoff_may_take() -> None:
    observer = Slow()
    parts: Sections = {"leases": {"max_handoff_time": 1.0}, "host": {"stop_timeout": 30.0}}
    async with handed_to(observer, 5, parts) as running:
        await asyncio.sleep(3)
        stopping = asyncio.create_task(running.stop("a"))
        await asyncio.sleep(1)
        (member,) = await running.container.members()
        assert member.stopping  # so others give it nothing more
        await stopping
        assert len(observer.heard) == 1
        assert (await lease_in(running.container)).position == "5"


async def test_a_stop_that_waits_for_a_key_tries_no_other_again() -> None:
    observer = Slow(fails_on="key-1")
    parts: Sections = {"observer": {"concurrency": 2}, "host": {"stop_timeout": 30.0}}
    async with handed_to(observer, 2, parts) as running:
        await asyncio.sleep(1)
        tried = len(observer.changes)
        await running.stop("a")
        assert observer.heard == [True]
        assert len(observer.changes) == tried


async def test_a_close_that_hangs_holds_a_stop_up_for_ten_seconds() -> None:
    class Hangs(Handed):
        async def close(self, _context: Context, _reason: CloseReason) -> None:
            await asyncio.Event().wait()

    feed, container = make.memory_feed(1, 5), MemoryLeases()
    async with fleet_of(Hangs, feed, container, {"host": {"stop_timeout": 60.0}}) as running:
        running.start("a")
        await asyncio.sleep(5)
        began = now()
        await running.stop("a")
        assert 10 <= now() - began < 11
        lease = await lease_in(container)
        assert (lease.owner, lease.position) == (None, "5")


async def test_the_owner_finishes_what_it_has_in_hand_before_the_lease_moves() -> None:
    async with Fleet(make.memory_feed(2, 40), pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")  # asks at about 10, while both batches of 20 are in hand
        await asyncio.sleep(40)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert set(fleet.log.times.values()) == {1}
        assert {host for host, _, _ in fleet.log.delivered} == {"a"}


async def test_an_owner_that_takes_too_long_is_cut_off_and_the_rest_comes_again() -> None:
    parts: Sections = {"leases": {"max_handoff_time": 3.0}}
    async with Fleet(make.memory_feed(2, 200), pace=1.0, settings=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(25)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert fleet.log.delivered == []  # neither of the batches has been finished yet
        await asyncio.sleep(200)
        assert set(fleet.log.times.values()) == {1}
        assert {host for host, _, _ in fleet.log.delivered} == {"a", "b"}


async def test_no_further_part_of_a_page_is_delivered_once_the_lease_is_asked_for() -> None:
    """A page of 100 comes in parts of 10, a second each; b asks in the midst of one."""
    feed, container = make.memory_feed(2, 200), MemoryLeases()
    parts = {"observer": {"max_unacknowledged": 10}}
    async with Fleet(feed, container, pace=0.1, settings=parts) as running:
        running.start("a")
        await asyncio.sleep(1)
        running.start("b")
        await until(lambda: running.log.closed)
        (_, moved, _) = running.log.closed[0]
        handled = sum(x.range_id == moved for x in running.log.changes)
        await asyncio.sleep(60)
        assert handled < sum(x.range_id == moved for x in running.log.changes)
        assert set(running.log.times.values()) == {1}
        assert len(running.log.times) == 200


async def test_nothing_more_is_delivered_by_a_stop_that_meets_a_wait_for_a_checkpoint() -> None:
    answers = asyncio.Event()

    class Silent(MemoryLeases):
        async def checkpoint(self, lease: Lease) -> Lease:
            await answers.wait()
            return await super().checkpoint(lease)

    feed, observer = make.memory_feed(1, 10), Handed()
    parts: Sections = {"observer": {"max_unacknowledged": 5}}
    async with fleet_of(lambda: observer, feed, Silent(), parts) as running:
        running.start("a")
        await asyncio.sleep(3)
        stopping = asyncio.create_task(running.stop("a"))
        await asyncio.sleep(1)
        answers.set()
        await stopping
    assert observer.sequences == [1, 2, 3, 4, 5]


async def test_the_request_of_a_host_that_came_since_the_last_listing_stands() -> None:
    feed, container, observer = make.memory_feed(1, 5), MemoryLeases(), Handed()
    parts: Sections = {"timing": {"balance_interval": 10.0}}
    async with fleet_of(lambda: observer, feed, container, parts) as running:
        running.start("a")
        await asyncio.sleep(15)
        await container.put_member(make.member("c"))
        await container.replace((await lease_in(container)).requested_by(HostName("c")))
        feed.append("late")  # its checkpoint finds the request
        await asyncio.sleep(3)
        lease = await lease_in(container)
        assert (lease.position, lease.next_owner) == ("6", "c")
        await asyncio.sleep(10)
        assert (await lease_in(container)).owner == "c"


async def test_the_request_of_a_host_that_is_dead_is_cleared_and_stops_no_reading() -> None:
    """It is asked for each second: rounds clear a request before most renewals see it."""
    feed, container, observer = make.memory_feed(1, 5), MemoryLeases(), Handed()
    async with fleet_of(lambda: observer, feed, container) as running:
        running.start("a")
        await asyncio.sleep(15)
        for _ in range(45):
            await asyncio.sleep(1)
            lease = await lease_in(container)
            with suppress(LeaseConflict):
                await container.replace(lease.requested_by(HostName("ghost")))
        feed.append("late")
        await asyncio.sleep(15)
        assert len(observer.changes) == 6
        assert len(observer.contexts) == 1  # opened once: it was never drained
        lease = await lease_in(container)
        assert (lease.owner, lease.next_owner, lease.epoch) == ("a", None, 1)
