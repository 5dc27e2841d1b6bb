"""What other hosts and commands see of an observer that fails, or does not come back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, cast

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.calls import CallWatch
from changefeed.leases.health import RangeHealth
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import proxied
from tests.support.calls import Calls
from tests.support.logs import captured_logs
from tests.support.looking import lease_in
from tests.support.renewed_each import RenewedEach

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


class Watched:
    """A fleet of one range and one host, which starts as the block begins."""

    def __init__(
        self,
        mood: Moody,
        sections: dict[str, Any] | None = None,
        leases: MemoryLeases | None = None,
    ) -> None:
        self.leases = leases or RenewedEach()
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


async def test_a_failure_is_in_the_lease_with_the_next_listing_and_costs_one_write() -> None:
    mood = Moody()
    async with Watched(mood, leases=MemoryLeases()) as watched:
        await asyncio.sleep(20)
        mood.processes = mood.fail
        watched.feed.append("k")
        await asyncio.sleep(6)
        health = await watched.health()
        assert health.last_error == "ValueError: no such table LINE 1: select"
        assert health.failing_since is not None
        assert watched.calls.count["replace"] == 1
        await asyncio.sleep(300)  # and more attempts
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
async def test_a_call_that_does_not_come_back_is_stuck_and_logged_once(where: str) -> None:
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
            assert watched.host.events.activity.of(R0).health == health
            await asyncio.sleep(1000)
            await watched.stopped()
            cut_off = await watched.health()
            assert cut_off.stuck_since == health.stuck_since, "for the next owner to see"
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
    "others": CallWatch.restart,
    "call": CallWatch.begin,
    "return": CallWatch.end,
    "failure": lambda watch: watch.end(AttemptFailed("ValueError", "no")),
    "cut off": lambda watch: watch.end(asyncio.CancelledError()),
}


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        (
            [(0, "call"), (8, "failure"), (88, "call"), (100, "return")],
            [(98, "call"), (100, None)],
        ),
        (
            [(0, "batch"), (6, "batch"), (6, "oldest acknowledged"), (12, "batch")],
            [(16, "acknowledgement")],
        ),
        ([(0, "batch"), (12, "all acknowledged")], [(10, "acknowledgement"), (12, None)]),
        (
            [(0, "batch"), (1, "call"), (2, "return")],
            [(10, "acknowledgement")],
        ),
        (
            [(0, "batch"), (11, "call"), (12, "failure")],
            [(10, "acknowledgement"), (12, None), (22, "acknowledgement")],
        ),
        (
            [(0, "batch"), (2, "call"), (30, "all acknowledged")],
            [(10, "acknowledgement"), (30, "call")],
        ),
        ([(0, "oldest acknowledged")], []),
        ([(0, "batch"), (1, "others"), (2, "oldest acknowledged")], []),
        ([(0, "call"), (12, "cut off")], [(10, "call")]),
    ],
    ids=[
        "each attempt has the whole time, the rest before it has none",
        "what is given later does not put off when the oldest is overdue",
        "what is acknowledged is waited for no more",
        "a call that returns acknowledges nothing",
        "after a failure the time begins again",
        "a call that hangs as well is the same trouble",
        "checkpoints are not manual",
        "what is handed to others is waited for anew",
        "a call that was cut off has not come back",
    ],
)
async def test_what_takes_longer_than_ten_seconds_is_overdue(
    steps: Sequence[tuple[int, str]], seen: Sequence[tuple[int, str | None]]
) -> None:
    watch, noted = CallWatch(10), [(0, cast("str | None", None))]
    for second in range(120):
        for step in (x for at, x in steps if at == second):
            STEPS[step](watch)
        what = None if watch.overdue is None else watch.overdue.what
        if what != noted[-1][1]:
            noted.append((second, what))
        await asyncio.sleep(1)
    assert noted[1:] == seen
