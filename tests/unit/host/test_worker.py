"""One worker and its lease: what is delivered, what is checkpointed, and how it ends."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers import range_observers
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime import delays
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.calls import Calls
from tests.support.handed import Handed, fleet_of, handed_to
from tests.support.looking import lease_in, now, until

if TYPE_CHECKING:
    from changefeed.testing.virtual_time import VirtualTimeLoop

R0 = RangeId("r0")
MANUAL = {"observer": {"checkpoint": "manual", "max_unacknowledged": 7}}


# Losing it


async def test_an_observer_in_mid_call_is_cancelled_where_the_lease_can_be_lost() -> None:
    feed, container, cable = make.memory_feed(1, 100), MemoryLeases(), Calls()
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a", container=proxied(container, cable))
        await asyncio.sleep(15)
        cable.out = True  # the last renewal was sent between 5 and 15
        await asyncio.sleep(18)
        assert fleet.log.closed == []
        await asyncio.sleep(12)
        assert fleet.log.closed == [("a", R0, CloseReason.LEASE_LOST)]
        assert fleet.log.delivered == []


class OnceBroken(Handed):
    """Fails in the first call of one of its methods; keeps the epochs of all calls of that."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method
        self.called: list[int] = []

    async def open(self, context: Context) -> None:
        self._call("open", context)

    async def process(self, context: Context, _changes: Sequence[Change]) -> None:
        self._call("process", context)

    def _call(self, method: str, context: Context) -> None:
        if method == self._method:
            self.called.append(context.epoch)
            if len(self.called) == 1:
                raise RuntimeError("not yet")


@pytest.mark.parametrize("method", ["open", "process"])
@pytest.mark.parametrize("of", ["process", "machine"])
async def test_what_slept_beyond_its_lease_between_two_attempts_calls_no_observer_under_it(
    of: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timers of the loop notice that a process was frozen, and not that a machine was."""
    observer, cable, suspended = OnceBroken(method), Calls(), 0.0
    monkeypatch.setattr(range_observers, "FIRST_DELAY", 3.0)
    monkeypatch.setattr(delays, "JITTER", 0.0)
    feed, leases = make.memory_feed(1, 1), MemoryLeases()
    async with fleet_of(lambda: observer, feed, leases) as running:
        running.start("a", container=proxied(leases, cable), clock=lambda: now() + suspended)
        await asyncio.sleep(1)
        cable.out = True  # else it might renew first: no other host has taken the lease
        if of == "machine":
            suspended = 60.0
        else:
            cast("VirtualTimeLoop", asyncio.get_running_loop()).skip(60)
        await asyncio.sleep(1 if of == "process" else 5)
        cable.out = False
        await asyncio.sleep(20)
        assert observer.called == [1, 2]  # its own lease still, but acquired anew


# What may be said of changes


async def test_so_many_changes_are_in_hand_unacknowledged_and_no_more() -> None:
    observer = Handed()
    async with handed_to(observer, 100, MANUAL) as fleet:
        await asyncio.sleep(60)
        assert len(observer.changes) == 7
        observer.contexts[0].acknowledge(observer.changes[0])
        await asyncio.sleep(60)
        assert (await lease_in(fleet.container)).position == "1"
        assert len(observer.changes) == 7  # the next seven have no room yet
        observer.contexts[0].checkpoint(observer.changes[6])
        await asyncio.sleep(60)
        assert len(observer.changes) == 14


@pytest.mark.parametrize("say", [Context.checkpoint, Context.acknowledge])
@pytest.mark.parametrize(
    "strange", [make.change(6, range_id="r0"), make.change(1)], ids=["later", "elsewhere"]
)
async def test_what_was_not_delivered_cannot_be_done(
    say: Callable[[Context, Change], None], strange: Change
) -> None:
    observer = Handed()
    async with handed_to(observer, 5, MANUAL):
        await asyncio.sleep(5)
        with pytest.raises(ValueError, match="was not delivered to the observer of range 'r0'"):
            getattr(observer.contexts[0], say.__name__)(strange)


# Checkpoints


AT_ONCE = {"attempts": 1, "max_delay": 9}


async def test_a_closed_observer_cannot_say_that_what_its_successor_was_given_is_done() -> None:
    handed = Handed()

    class FailsOnce(Handed):
        async def open(self, context: Context) -> None:
            handed.contexts.append(context)

        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if len(handed.contexts) == 1:
                raise ValueError("the first observer fails")
            await handed.process(context, changes)

    parts: Sections = {**MANUAL, "observer": {**MANUAL["observer"], "retry": AT_ONCE}}
    container = MemoryLeases()
    async with fleet_of(FailsOnce, make.memory_feed(1, 5), container, parts) as running:
        running.start("a")
        await asyncio.sleep(60)
        first, second = handed.contexts
        last = max(handed.changes, key=lambda x: x.sequence)
        first.checkpoint(last)
        await asyncio.sleep(5)
        assert (await lease_in(container)).position == "0"
        second.acknowledge(handed.changes[-1])
        second.checkpoint(last)
        await asyncio.sleep(5)
        assert (await lease_in(container)).position == "5"


@pytest.mark.parametrize("policy", ["batch", 3600])
async def test_a_crash_repeats_no_more_than_may_be_unacknowledged(policy: object) -> None:
    feed, container = make.memory_feed(1, 1000), MemoryLeases()
    parts = {
        "observer": {
            "checkpoint": policy,
            "max_unacknowledged": 20,
        }
    }
    async with Fleet(feed, container, pace=0.01, settings=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(3)
        await fleet.kill("a")
        delivered = len(fleet.log.delivered)
        assert delivered % 20 == 0
        assert 100 < delivered < 400
        fleet.start("b")
        await asyncio.sleep(60)
        assert len(fleet.log.times) == 1000
        assert len(fleet.log.delivered) - 1000 <= 20


async def test_at_rest_the_last_position_is_stored_whatever_the_policy_says() -> None:
    observer = Handed()
    parts: Sections = {"observer": {"checkpoint": 3600}}
    async with handed_to(observer, 5, parts) as running:
        await asyncio.sleep(30)
        assert (await lease_in(running.container)).position == "5"


async def test_the_last_write_carries_what_the_policy_had_put_off() -> None:
    feed, container = make.memory_feed(1, 100), MemoryLeases()
    parts = {"observer": {"checkpoint": 3600}}
    async with Fleet(
        feed, container, pace=0.1, settings={**parts, "feed": {"page_size": 10}}
    ) as fleet:
        fleet.start("a")
        await asyncio.sleep(5.5)
        assert (await lease_in(container)).position == "0"
        await fleet.stop("a")
        assert (await lease_in(container)).position == "60"
        fleet.start("a")
        await asyncio.sleep(30)
        assert set(fleet.log.times.values()) == {1}
        assert len(fleet.log.times) == 100


# Handing it over, and ending it


async def test_a_lease_is_not_handed_to_a_host_that_died_while_it_waited() -> None:
    feed, container = make.memory_feed(2, 200), MemoryLeases()
    parts = {"leases": {"max_handoff_time": 150.0}}
    async with Fleet(feed, container, pace=1.0, settings=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")  # asks at about 10, while about 100 seconds of work are in hand
        await asyncio.sleep(20)
        assert [x.next_owner for x in await container.list()].count(HostName("b")) == 1
        await fleet.kill("b")
        await until(lambda: fleet.log.closed)
        assert 70 < now() < 130
        await asyncio.sleep(6)
        assert await fleet.loads() == {"a": 2}


async def test_children_begin_where_their_parent_ends_and_not_where_new_ranges_do() -> None:
    feed, container = make.memory_feed(1, 10), MemoryLeases()
    async with Fleet(feed, container, pace=1.0, settings={"feed": {"start": "now"}}) as fleet:
        fleet.start("a")
        await asyncio.sleep(1)
        assert fleet.log.delivered == []
        feed.append("k", range_id=R0)
        for child in feed.split_range(R0):
            feed.append("k", range_id=child.id)
        await asyncio.sleep(60)
        delivered = [(x, n) for _, x, n in fleet.log.delivered]
        assert delivered[0] == ("r0", 11)
        assert sorted(delivered[1:]) == [("r1", 1), ("r2", 1)]


class UnansweredEnd(MemoryLeases):
    """The answer to the first end of a range is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[Lease] = []

    async def replace(self, lease: Lease) -> Lease:
        written = await super().replace(lease)
        if lease.ended and not self.lost:
            self.lost.append(lease)
            raise StoreUnavailable("the answer was lost")
        return written


async def test_an_end_whose_answer_was_lost_is_known_for_ones_own() -> None:
    feed, container = make.memory_feed(1, 10), UnansweredEnd()
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(1)
        feed.split_range(R0)
        await asyncio.sleep(30)
        assert container.lost
        assert set(await fleet.owners()) == {"r1", "r2"}
        assert not fleet.running["a"].done()
