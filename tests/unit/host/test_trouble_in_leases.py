"""What other hosts and commands see of an observer that fails, or does not come back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.call_watch import CallWatch
from changefeed.leases.health import RangeHealth
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import proxied
from tests.support.calls import Calls
from tests.support.logs import captured_logs
from tests.support.looking import lease_in, now
from tests.support.renewed_each import RenewedEach

R0 = RangeId("r0")
SELDOM_RENEWED = {"leases": {"expiration": 36_000}}
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


class Watched:
    """A fleet of one range and one host, which starts as the block begins."""

    def __init__(self, mood: Moody, sections: dict[str, Any] | None = None) -> None:
        self.leases = RenewedEach()  # where heartbeats keep them, loads are written, too
        self.feed = MemoryFeed(1)
        self.calls = Calls()
        container = proxied(self.leases, self.calls)
        self.fleet = Fleet(self.feed, container, observer=observing(mood), settings=sections)

    async def __aenter__(self) -> Self:
        self.host = self.fleet.start("a")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fleet.__aexit__(None, None, None)

    async def health(self) -> RangeHealth:
        return (await lease_in(self.leases)).health

    async def stopped(self) -> None:
        """Stop the host, in order or not."""
        self.host.stop()
        await asyncio.wait([self.fleet.running["a"]])


async def test_a_failure_is_in_the_lease_long_before_a_renewal_and_costs_one_write() -> None:
    mood = Moody()
    async with Watched(mood, SELDOM_RENEWED) as watched:
        await asyncio.sleep(20)
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(5)
        health = await watched.health()
        assert health.last_error == "ValueError: no such table LINE 1: select"
        assert health.failing_since is not None
        assert watched.calls.count["replace"] == 1
        await asyncio.sleep(300)  # and seven more attempts
        assert watched.calls.count["replace"] == 1
        assert (await watched.health()).failing_since == health.failing_since


async def test_an_observer_that_could_not_open_and_has_nothing_to_do_fails_no_more() -> None:
    mood = Moody()
    async with Watched(mood) as watched:
        mood.opens = mood.fail
        await asyncio.sleep(30)
        assert (await watched.health()).has_problem
        mood.opens = mood._well
        await asyncio.sleep(100)
        assert await watched.health() == RangeHealth()


@pytest.mark.parametrize("where", ["opens", "processes"])
async def test_a_call_that_does_not_come_back_is_stuck_and_logged_once(
    where: str,
) -> None:
    mood = Moody()
    setattr(mood, where, mood.hang)
    with captured_logs() as logs:
        async with Watched(mood) as watched:
            watched.feed.append("k")
            await asyncio.sleep(290)
            assert not (await watched.health()).has_problem
            await asyncio.sleep(20)
            health = await watched.health()
            assert health.stuck_since is not None
            assert watched.host.events.activity.health_of(R0) == health
            await asyncio.sleep(1000)
            assert (await watched.health()).stuck_since == health.stuck_since
    (warning,) = [x for x in logs if x["event"] == "observer.stuck"]
    assert (warning["range"], warning["log_level"]) == ("r0", "warning")
    assert "observer.timeout" in warning["advice"]


async def test_an_observer_that_acknowledges_nothing_is_stuck_though_it_gets_more() -> None:
    mood = Moody()
    with captured_logs() as logs:
        async with Watched(mood, MANUAL) as watched:
            watched.feed.append("k")
            await asyncio.sleep(290)
            assert not (await watched.health()).has_problem
            await asyncio.sleep(30)
            health = await watched.health()
            assert health.stuck_since is not None
            for _ in range(10):
                watched.feed.append("k")
                await asyncio.sleep(100)
            later = await watched.health()
            assert later.stuck_since == health.stuck_since
            assert later.last_progress is not None
    (warning,) = [x for x in logs if x["event"] == "observer.stuck"]
    assert "acknowledged" in warning["advice"]


async def test_an_observer_that_acknowledges_all_as_it_closes_leaves_no_trouble() -> None:
    mood = Moody()
    mood.acknowledges_at_close = True
    async with Watched(mood, MANUAL | {"host": {"stop_timeout": 5}}) as watched:
        watched.feed.append("k")
        await asyncio.sleep(320)
        assert (await watched.health()).stuck_since is not None
        await watched.stopped()
        assert not (await watched.health()).has_problem


Step = Callable[[CallWatch], None]
STEPS: dict[str, Step] = {
    "batch": CallWatch.unacknowledged,
    "oldest acknowledged": lambda watch: watch.acknowledged(left=True),
    "all acknowledged": lambda watch: watch.acknowledged(left=False),
    "close": CallWatch.close,
    "call": CallWatch.begin,
    "return": CallWatch.end,
    "failure": lambda watch: watch.end(AttemptFailed("ValueError", "no")),
}


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        (
            [(0, "call"), (8, "failure"), (88, "call"), (100, "return")],
            [(98, "call"), (100, "returned")],
        ),
        (
            [(0, "batch"), (6, "batch"), (6, "oldest acknowledged"), (12, "batch")],
            [(6, "returned"), (16, "acknowledgement")],
        ),
        ([(0, "batch"), (12, "all acknowledged")], [(10, "acknowledgement"), (12, "returned")]),
        (
            [(0, "batch"), (1, "call"), (2, "return")],
            [(2, "returned"), (10, "acknowledgement")],
        ),
        (
            [(0, "batch"), (11, "call"), (12, "failure")],
            [(10, "acknowledgement"), (22, "acknowledgement")],
        ),
        ([(0, "batch"), (2, "call"), (30, "all acknowledged")], [(10, "acknowledgement")]),
        ([(0, "oldest acknowledged")], []),
        ([(0, "batch"), (1, "close"), (2, "oldest acknowledged")], []),
    ],
    ids=[
        "each attempt has the whole time, the rest before it has none",
        "what is given later does not put off when the oldest is overdue",
        "what is acknowledged is waited for no more",
        "a call that returns acknowledges nothing",
        "after a failure the time begins again",
        "a call that hangs as well is the same trouble",
        "checkpoints are not manual",
        "a closed observer is not waited for",
    ],
)
async def test_what_takes_longer_than_ten_seconds_is_overdue(
    steps: Sequence[tuple[float, str]], seen: Sequence[tuple[float, str]]
) -> None:
    noted: list[tuple[float, str]] = []

    def note(what: str) -> None:
        noted.append((now(), what))

    watch = CallWatch(10, overdue=note, returned=lambda: note("returned"))
    for at, step in steps:
        await asyncio.sleep(at - now())
        STEPS[step](watch)
    await asyncio.sleep(60)
    assert noted == seen
