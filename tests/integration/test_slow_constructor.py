"""An observer that takes longer to make than a lease lasts, in real seconds."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import Context
from changefeed.observers.range_observer_factory import RangeObserverFactory
from changefeed.testing.fleet import Fleet
from tests.integration.test_stuck_observer import QUICK
from tests.support.processes import PATIENCE


class LoadsModel:
    """Async, and made by a constructor that blocks for twice the expiration."""

    made = 0
    seen: Counter[tuple[RangeId, int]]

    def __init__(self) -> None:
        type(self).made += 1
        time.sleep(2 * QUICK["expiration"])

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self.seen.update((context.range.id, x.sequence) for x in changes)


async def test_leases_are_renewed_while_observers_are_made() -> None:
    LoadsModel.made, LoadsModel.seen = 0, Counter()
    feed, container = MemoryFeed(2), MemoryLeases()
    for n in range(20):
        feed.append(f"key-{n}")
    make = RangeObserverFactory(
        adapt(LoadsModel), ObserverSettings(), HostEvents(HostName("fleet")), Random(1)
    )
    parts = {"leases": QUICK, "feed": {"poll_interval": 0.05}}
    async with Fleet(feed, container, settings=parts, make_observer=make) as fleet:
        fleet.start("a")
        async with asyncio.timeout(PATIENCE):
            await fleet.caught_up()
    assert LoadsModel.made == 2
    assert set(LoadsModel.seen.values()) == {1}
