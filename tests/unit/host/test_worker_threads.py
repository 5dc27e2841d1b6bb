"""What plain observers say from threads of their own, or after they have returned."""

import asyncio
import threading
from collections.abc import Sequence
from random import Random

import pytest

from changefeed.feeds.feed import Change
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Progress
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import Context
from changefeed.observers.range_observers import ObserverSetup
from changefeed.testing.fleet import Fleet, Sections
from tests.support.looking import lease_in

pytestmark = pytest.mark.real_time


class Keeping:
    """A plain observer that leaves its changes to somebody else."""

    def __init__(self, kept: list[tuple[Context, Change]]) -> None:
        self._kept = kept

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        self._kept += [(context, x) for x in changes]


async def test_a_checkpoint_said_in_a_thread_is_counted_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting, done = set[int](), Progress.done

    def noting(progress: Progress, changes: Sequence[Change]) -> int:
        counting.add(threading.get_ident())
        return done(progress, changes)

    monkeypatch.setattr(Progress, "done", noting)
    feed, container = MemoryFeed(1), MemoryLeases()
    kept = list[tuple[Context, Change]]()
    for _ in range(3):
        feed.append("k")
    parts: Sections = {
        "observer": {"checkpoint": "manual"},
        "timing": {"balance_interval": 0.2},
    }
    settings = ObserverSettings.model_validate(parts["observer"])
    make = adapt(Keeping, {"kept": kept})
    setup = ObserverSetup(make, settings, HostEvents(HostName("fleet")), Random(1))
    fleet = Fleet(feed, container, settings=parts, observers=setup)
    async with asyncio.timeout(10), fleet:
        fleet.start("a")
        while len(kept) < 3:  # noqa: ASYNC110 - a thread sets no event of the loop
            await asyncio.sleep(0.01)
        context = kept[0][0]
        await asyncio.to_thread(context.acknowledge, kept[1][1])
        await asyncio.to_thread(context.checkpoint, kept[0][1])
        await context.flush()
        stored = await lease_in(container)
        assert stored.position == "2"
        assert counting == {threading.get_ident()}
        await asyncio.to_thread(context.acknowledge, kept[2][1])
        await fleet.stop("a")
