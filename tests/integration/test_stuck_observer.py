"""A plain observer that hangs in its thread, in a fleet of two, in real seconds."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.errors import ObserverStuck
from changefeed.observers.observer import CloseReason, Context
from changefeed.observers.range_observer_factory import RangeObserverFactory
from changefeed.testing.fleet import Fleet
from tests.support.looking import until
from tests.support.processes import PATIENCE

R0, R1 = RangeId("r0"), RangeId("r1")
QUICK = {"expiration": 1.0}


@dataclass(kw_only=True)
class Seen:
    """What the observers of all hosts saw; the stuck one hangs until it is let go."""

    done: list[tuple[str, RangeId, int]] = field(default_factory=list)
    closed: list[tuple[str, RangeId, CloseReason]] = field(default_factory=list)
    stuck: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)


class Sticking:
    """Hangs on a change of ``r0``, the first time it sees it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        for change in changes:
            if (change.range_id, change.sequence) == (R0, 3) and not self._seen.stuck.is_set():
                self._seen.stuck.set()
                self._seen.let_go.wait()
                return
            self._seen.done.append((context.host, change.range_id, change.sequence))

    def close(self, context: Context, reason: CloseReason) -> None:
        self._seen.closed.append((context.host, context.range.id, reason))


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    yield seen
    seen.let_go.set()


async def all_of(feed: MemoryFeed, range_id: RangeId) -> set[tuple[RangeId, int]]:
    page = await feed.read(
        FeedRange(id=range_id),
        await feed.start(FeedRange(id=range_id), "beginning"),
        1000,
    )
    return {(x.range_id, x.sequence) for x in page.changes}


async def test_a_stuck_observer_stops_its_host_and_its_lease_expires_to_another(
    seen: Seen,
) -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    for n in range(40):
        feed.append(f"key-{n}")
    everything = await all_of(feed, R0) | await all_of(feed, R1)
    make = RangeObserverFactory(
        adapt(Sticking, {"seen": seen}),
        ObserverSettings(timeout=0.2),
        HostEvents(HostName("fleet")),
        Random(1),
    )
    parts = {"leases": QUICK, "feed": {"poll_interval": 0.05, "page_size": 2}}
    clock = asyncio.get_running_loop().time
    async with Fleet(feed, container, settings=parts, make_observer=make) as fleet:
        fleet.start("a")
        with pytest.raises(ObserverStuck, match=r"range 'r0' is stuck: 'process'"):
            await fleet.running.pop("a")
        del fleet.hosts["a"]
        ended = clock()
        assert await fleet.owners() == {R0: "a", R1: None}  # one is kept, the other released
        assert seen.closed == [("a", R1, CloseReason.STOPPING)]
        assert {x[1:] for x in seen.done if x[1] == R0} == {(R0, 1), (R0, 2)}

        fleet.start("b")
        await until(lambda: not {x[1:] for x in seen.done} < everything, within=PATIENCE)
        assert clock() - ended > 0.5  # the lease had to expire first
        assert {x[1:] for x in seen.done} == everything
        assert {host for host, r, n in seen.done if r == R0 and n >= 3} == {"b"}
