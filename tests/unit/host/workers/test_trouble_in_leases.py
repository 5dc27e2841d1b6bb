"""What other hosts and commands see of an observer that fails, or does not come back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.workers.call_watch import CallWatch
from changefeed.leases.health import RangeHealth
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet
from tests.support.logs import captured_logs
from tests.support.looking import lease_in
from tests.support.proxies import proxied

R0 = RangeId("r0")
MANUAL: dict[str, Any] = {"observer": {"checkpoint": "manual"}}


class Moody:
    """What the observers of a test do when they are opened and called, and what they saw."""

    context: Context

    def __init__(self) -> None:
        self.seen: list[Change] = []
        self.acknowledges_at_close = False
        self.opens: Callable[[], Awaitable[None]] = self._well
        self.processes: Callable[[], Awaitable[None]] = self._well

    @property
    def last(self) -> Change:
        return self.seen[-1]

    async def fail(self) -> None:
        raise ValueError("no such table\nLINE 1: select")

    async def hang(self) -> None:
        await asyncio.Event().wait()

    async def _well(self) -> None:
        pass


def observing(mood: Moody) -> type:
    class Observing:
        async def open(self, context: Context) -> None:
            mood.context = context
            await mood.opens()

        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            del context
            mood.seen += changes
            await mood.processes()

        async def close(self, context: Context, reason: CloseReason) -> None:
            del reason
            if mood.acknowledges_at_close:
                context.checkpoint(mood.last)

    return Observing


@pytest.fixture
def mood() -> Moody:
    return Moody()


class Watched:
    """A fleet of one range, whose stored lease is looked at."""

    def __init__(self, mood: Moody, parts: dict[str, Any] | None = None) -> None:
        self.leases = MemoryLeases()
        self.feed = MemoryFeed(1)
        self.written: Counter[str] = Counter()
        self.fleet = Fleet(
            self.feed,
            proxied(self.leases, self._count),
            observer=observing(mood),
            settings=parts,
        )

    async def health(self) -> RangeHealth:
        lease = await lease_in(self.leases)
        return lease.health

    async def _count(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.written[name] += 1
        return await call()


async def test_a_failure_is_in_the_lease_long_before_a_renewal_and_costs_one_write(
    mood: Moody,
) -> None:
    watched = Watched(mood, {"leases": {"renew_interval": 600, "expiration": 2000}})
    async with watched.fleet as fleet:
        fleet.start("a")
        await asyncio.sleep(20)
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(5)
        health = await watched.health()
        assert health.last_error == "ValueError: no such table LINE 1: select"
        assert health.failing_since is not None
        assert watched.written["replace"] == 1
        await asyncio.sleep(300)  # and seven more attempts
        assert watched.written["replace"] == 1
        assert (await watched.health()).failing_since == health.failing_since


async def test_what_has_recovered_is_well_in_the_lease_with_the_next_renewal(
    mood: Moody,
) -> None:
    watched = Watched(mood)
    async with watched.fleet as fleet:
        host = fleet.start("a")
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(30)
        assert (await watched.health()).in_trouble
        mood.processes = mood._well
        await asyncio.sleep(100)
        health = await watched.health()
        assert not health.in_trouble
        assert (health.last_error, health.last_progress is None) == (None, False)
        assert host.range_health[R0] == health


async def test_an_observer_that_fails_and_succeeds_in_turns_writes_twice_as_often_at_most(
    mood: Moody,
) -> None:
    watched = Watched(mood, {"observer": {"retry": {"first_delay": 4, "jitter": 0}}})
    turns = 0

    async def fail_once() -> None:
        nonlocal turns
        turns += 1
        if turns % 2:
            raise ValueError("busy")

    async with watched.fleet as fleet:
        fleet.start("a")
        mood.processes = fail_once
        for _ in range(100):
            watched.feed.append("k")
            await asyncio.sleep(6)
    assert turns > 150
    assert 55 <= watched.written["replace"] <= 2 * 60 + 2


async def test_what_fails_once_and_then_succeeds_is_no_news(mood: Moody) -> None:
    watched = Watched(mood, {"leases": {"renew_interval": 600, "expiration": 2000}})
    failures = iter([True])

    async def fail_first() -> None:
        if next(failures, False):
            raise ValueError("busy")

    async with watched.fleet as fleet:
        fleet.start("a")
        mood.processes = fail_first
        watched.feed.append("k")
        await asyncio.sleep(60)
        assert fleet.hosts["a"].range_health[R0].last_progress is not None
        assert watched.written["replace"] == 0


async def test_a_host_that_stopped_leaves_word_of_what_failed_and_the_next_goes_on_with_it(
    mood: Moody,
) -> None:
    watched = Watched(mood)
    async with watched.fleet as fleet:
        fleet.start("a")
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(3)
        await fleet.stop("a")
        left = await watched.health()
        assert left.failing_since is not None
        await asyncio.sleep(1000)
        fleet.start("b")
        await asyncio.sleep(30)
        assert (await watched.health()).failing_since == left.failing_since


async def test_an_observer_that_could_not_open_and_has_nothing_to_do_fails_no_more(
    mood: Moody,
) -> None:
    watched = Watched(mood)
    async with watched.fleet as fleet:
        fleet.start("a")
        mood.opens = mood.fail
        await asyncio.sleep(30)
        assert (await watched.health()).in_trouble
        mood.opens = mood._well
        await asyncio.sleep(100)
        assert await watched.health() == RangeHealth()


@pytest.mark.parametrize("where", ["opens", "processes"])
async def test_a_call_that_does_not_come_back_is_stuck_everywhere_and_logged_once(
    mood: Moody, where: str
) -> None:
    watched = Watched(mood)
    setattr(mood, where, mood.hang)
    watched.feed.append("k")
    with captured_logs() as logs:
        async with watched.fleet as fleet:
            host = fleet.start("a")
            await asyncio.sleep(290)
            assert not (await watched.health()).in_trouble
            await asyncio.sleep(20)
            health = await watched.health()
            assert health.stuck_since is not None
            assert host.range_health[R0] == health
            await asyncio.sleep(1000)
            assert (await watched.health()).stuck_since == health.stuck_since
    (warning,) = [x for x in logs if x["event"] == "observer.no_progress"]
    assert (warning["range"], warning["log_level"]) == ("r0", "warning")
    assert "observer.timeout" in warning["advice"]


async def test_a_call_that_comes_back_after_all_is_stuck_no_more(mood: Moody) -> None:
    watched = Watched(mood)
    back = asyncio.Event()

    async def wait() -> None:
        await back.wait()

    async with watched.fleet as fleet:
        fleet.start("a")
        mood.processes = wait
        watched.feed.append("k")
        await asyncio.sleep(320)
        assert (await watched.health()).stuck_since is not None
        back.set()
        await asyncio.sleep(20)
        assert not (await watched.health()).in_trouble


async def test_a_host_that_stopped_in_a_call_leaves_word_that_it_was_stuck(mood: Moody) -> None:
    watched = Watched(mood, {"host": {"stop_timeout": 5}})
    async with watched.fleet as fleet:
        fleet.start("a")
        mood.processes = mood.hang
        watched.feed.append("k")
        await asyncio.sleep(320)
        fleet.hosts["a"].stop()
        await asyncio.wait([fleet.running["a"]])
        assert (await watched.leases.list())[0].owner is None
        assert (await watched.health()).stuck_since is not None


async def test_an_observer_that_acknowledges_nothing_is_stuck_where_there_is_room_for_more(
    mood: Moody,
) -> None:
    watched = Watched(mood, MANUAL)
    with captured_logs() as logs:
        async with watched.fleet as fleet:
            host = fleet.start("a")
            watched.feed.append("k")
            await asyncio.sleep(290)
            assert not (await watched.health()).in_trouble
            await asyncio.sleep(30)
            health = await watched.health()
            assert health.stuck_since is not None
            for _ in range(10):
                watched.feed.append("k")
                await asyncio.sleep(100)
            later = await watched.health()
            assert (later.stuck_since, later.last_progress is None) == (
                health.stuck_since,
                False,
            )
            assert host.range_health[R0].stuck_since == health.stuck_since
    (warning,) = [x for x in logs if x["event"] == "observer.no_progress"]
    assert warning["advice"] == ("it has not acknowledged what it was given: see that it does")


@pytest.mark.parametrize("acknowledge", ["checkpoint", "acknowledge"])
async def test_acknowledgements_that_are_late_and_keep_coming_are_progress(
    mood: Moody, acknowledge: str
) -> None:
    watched = Watched(mood, MANUAL)

    async def acknowledge_later() -> None:
        acknowledges = getattr(mood.context, acknowledge)
        asyncio.get_running_loop().call_later(500, acknowledges, mood.last)

    mood.processes = acknowledge_later
    async with watched.fleet as fleet:
        host = fleet.start("a")
        troubled = []
        for _ in range(20):
            watched.feed.append("k")
            await asyncio.sleep(200)
            troubled.append(host.range_health[R0].in_trouble)
    assert troubled == [False, True, *(18 * [False])]  # until the first of all comes


async def test_an_acknowledgement_ends_the_trouble_while_others_are_not_there(
    mood: Moody,
) -> None:
    watched = Watched(mood, MANUAL)
    async with watched.fleet as fleet:
        fleet.start("a")
        for _ in range(2):
            watched.feed.append("k")
            await asyncio.sleep(20)
        first, last = mood.seen
        await asyncio.sleep(320)
        assert (await watched.health()).stuck_since is not None
        mood.context.acknowledge(last)  # the oldest is waited for
        await asyncio.sleep(20)
        assert (await watched.health()).stuck_since is not None
        watched.feed.append("k")
        await asyncio.sleep(20)
        mood.context.acknowledge(first)
        await asyncio.sleep(20)
        assert not (await watched.health()).in_trouble
        await asyncio.sleep(290)
        assert (await watched.health()).stuck_since is not None
        mood.context.checkpoint(mood.last)
        await asyncio.sleep(400)
        assert not (await watched.health()).in_trouble


async def test_a_batch_that_fails_is_failing_though_one_before_is_not_acknowledged(
    mood: Moody,
) -> None:
    retry = {"attempts": None, "first_delay": 50, "multiplier": 1, "jitter": 0}
    watched = Watched(mood, {"observer": {"checkpoint": "manual", "retry": retry}})
    async with watched.fleet as fleet:
        fleet.start("a")
        watched.feed.append("k")
        await asyncio.sleep(320)
        assert (await watched.health()).stuck_since is not None
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(400)
        health = await watched.health()
        assert (health.failing_since is None, health.stuck_since) == (False, None)
        mood.processes = mood._well
        await asyncio.sleep(100)
        assert not (await watched.health()).in_trouble
        await asyncio.sleep(320)  # the first is not acknowledged yet
        assert (await watched.health()).stuck_since is not None


async def test_a_call_that_hangs_after_what_is_not_acknowledged_is_one_trouble(
    mood: Moody,
) -> None:
    watched = Watched(mood, MANUAL)
    with captured_logs() as logs:
        async with watched.fleet as fleet:
            fleet.start("a")
            watched.feed.append("k")
            await asyncio.sleep(20)
            mood.processes = mood.hang
            watched.feed.append("k")
            await asyncio.sleep(1000)
            mood.context.checkpoint(mood.seen[0])
            await asyncio.sleep(20)
            assert (await watched.health()).stuck_since is not None
            assert len([x for x in logs if x["event"] == "observer.no_progress"]) == 1


async def test_what_was_not_acknowledged_is_no_trouble_of_a_host_that_gave_up_its_lease(
    mood: Moody,
) -> None:
    watched = Watched(mood, MANUAL | {"host": {"stop_timeout": 5}})
    with captured_logs() as logs:
        async with watched.fleet as fleet:
            host = fleet.start("a")
            watched.feed.append("k")
            await asyncio.sleep(20)
            host.stop()
            await asyncio.wait([fleet.running["a"]])
            await asyncio.sleep(1000)
            assert host.range_health == {}
    assert not [x for x in logs if x["event"] == "observer.no_progress"]


async def test_an_observer_that_acknowledges_all_as_it_closes_leaves_no_trouble(
    mood: Moody,
) -> None:
    watched = Watched(mood, MANUAL | {"host": {"stop_timeout": 5}})
    mood.acknowledges_at_close = True
    async with watched.fleet as fleet:
        host = fleet.start("a")
        watched.feed.append("k")
        await asyncio.sleep(320)
        assert (await watched.health()).stuck_since is not None
        host.stop()
        await asyncio.wait([fleet.running["a"]])
        assert not (await watched.health()).in_trouble


async def test_each_attempt_has_the_whole_time_and_a_rest_has_none() -> None:
    seen: list[str] = []
    watch = CallWatch(10, overdue=seen.append, returned=lambda: seen.append("returned"))
    with watch.watching():
        await asyncio.sleep(8)
        watch.attempt()
        await asyncio.sleep(8)
        watch.rest()
        await asyncio.sleep(80)
        watch.attempt()
        await asyncio.sleep(12)
    assert seen == ["call", "returned"]
    watch.attempt()  # outside of a call, as when the observer is closed
    await asyncio.sleep(20)
    assert seen == ["call", "returned"]


async def test_what_is_given_meanwhile_does_not_put_off_when_the_oldest_is_overdue() -> None:
    seen: list[tuple[str, float]] = []
    clock = asyncio.get_running_loop().time
    began = clock()

    def note(what: str) -> None:
        seen.append((what, clock() - began))

    watch = CallWatch(10, overdue=note, returned=lambda: note("returned"))
    watch.unacknowledged()
    await asyncio.sleep(6)
    watch.unacknowledged()
    watch.acknowledged(left=True)
    await asyncio.sleep(6)
    watch.unacknowledged()
    await asyncio.sleep(6)
    watch.acknowledged(left=False)
    await asyncio.sleep(60)
    assert seen == [("returned", 6), ("acknowledgement", 16), ("returned", 18)]


async def test_at_rest_and_without_manual_checkpoints_no_time_counts() -> None:
    seen: list[str] = []
    watch = CallWatch(10, overdue=seen.append, returned=lambda: seen.append("returned"))
    watch.acknowledged(left=True)
    await asyncio.sleep(60)
    assert seen == []
    watch.unacknowledged()
    watch.end()
    watch.acknowledged(left=True)
    await asyncio.sleep(60)
    assert seen == []
