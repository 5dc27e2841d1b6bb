"""A store that comes back without its last writes, as a Redis that was restarted does."""

import asyncio
from collections.abc import Callable

import pytest

from changefeed.leases.container import LeaseContainer
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.stores.memory import MemoryStore
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership

SETTLED = 25.0


def kept_by(container: LeaseContainer) -> Callable[[], None]:
    """Return what puts back what the container keeps now."""
    parts = [container, *vars(container).values()]
    stores = [y for x in parts for y in vars(x).values() if isinstance(y, MemoryStore)]
    records = [(x, dict(x._records)) for x in stores]

    def forget() -> None:
        for store, kept in records:
            store._records = dict(kept)

    return forget


@pytest.mark.parametrize("kind", ["combined", "separate"])
async def test_who_lives_goes_on_with_each_range_though_the_store_shows_the_dead(
    kind: str,
) -> None:
    container: LeaseContainer = MemoryLeases()
    if kind == "separate":
        container = TwoStoreLeases(MemoryOwnership(), MemoryCheckpoints())
    feed = make.memory_feed(4, 40)
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        forget = kept_by(container)
        await fleet.stop("a")
        fleet.start("a")  # under its name, and another incarnation
        fleet.start("b")
        await fleet.balanced()
        for n in range(40):
            feed.append(f"key-{n}")
        await fleet.caught_up()
        epochs = {x.range_id: x.epoch for x in await container.list()}
        forget()
        assert set((await fleet.owners()).values()) == {"a"}
        await asyncio.sleep(SETTLED)
        assert set((await fleet.owners()).values()) == {"a", "b"}
        assert all(x.epoch > epochs[x.range_id] for x in await container.list())
        assert set((await fleet.lags()).values()) == {0}
        assert not any(x.done() for x in fleet.running.values())
