"""Leases that somebody deletes under a fleet that reads."""

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.balancing.deleted_leases import DeletedLeases
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.remembering import LeaseMemory
from changefeed.testing.fleet import Fleet

SETTLED = 60.0
CHANGES = 400
PAGE = 5


class Deleting:
    """Two hosts amid a backlog, and what each delivers."""

    def __init__(self, start: str) -> None:
        self.feed, self.leases = MemoryFeed(4), MemoryLeases()
        parts = {"feed": {"start": start, "page_size": PAGE}}
        self.fleet = Fleet(self.feed, self.leases, pace=0.2, settings=parts)

    async def amid_a_backlog(self) -> None:
        self.fleet.start("a")
        self.fleet.start("b")
        await asyncio.sleep(SETTLED)
        for n in range(CHANGES):
            self.feed.append(f"k{n}")
        await asyncio.sleep(7)

    async def delete(self, chosen: Callable[[Lease], bool] = lambda _: True) -> None:
        for lease in await self.leases.list():
            if chosen(lease):
                await self.leases.delete(lease)


@pytest.mark.parametrize("start", ["beginning", "now"])
async def test_ranges_go_on_where_their_living_readers_were(start: str) -> None:
    story = Deleting(start)
    async with story.fleet as fleet:
        await story.amid_a_backlog()
        before = {x.range_id: x.epoch for x in await story.leases.list()}
        await story.delete()
        await asyncio.sleep(600)
        assert len(fleet.log.times) == CHANGES
        assert fleet.log.repeats <= 4 * 2 * PAGE, "a batch in hand, and one that was unwritten"
        after = {x.range_id: x.epoch for x in await story.leases.list()}
        assert all(after[x] > before[x] for x in before)


async def test_what_a_dead_host_read_begins_again_after_an_expiration() -> None:
    story = Deleting("beginning")
    async with story.fleet as fleet:
        await story.amid_a_backlog()
        dead = {x for x, owner in (await fleet.owners()).items() if owner == "a"}
        await fleet.kill("a")
        await story.delete(lambda x: x.owner == "a")
        await asyncio.sleep(25)
        assert {x.range_id for x in await story.leases.list()} == {*await fleet.owners()} - dead
        await asyncio.sleep(15)
        assert dead < {x.range_id for x in await story.leases.list()}
        await asyncio.sleep(600)
        assert len(fleet.log.times) == CHANGES


async def test_a_lease_that_is_there_again_and_vanishes_again_is_waited_for_anew() -> None:
    clock = asyncio.get_running_loop().time
    memory, r0 = LeaseMemory(), RangeId("r0")
    deleted = DeletedLeases(memory, patience=30, clock=clock)
    assert deleted.left_to_their_readers([r0]) == set()  # it was never seen
    memory._epochs[r0] = 3
    assert (deleted.left_to_their_readers([r0]), deleted.due_in) == ({r0}, 30)
    await asyncio.sleep(20)
    assert (deleted.left_to_their_readers([r0]), deleted.due_in) == ({r0}, 10)
    assert (deleted.left_to_their_readers([]), deleted.due_in) == (set(), inf)
    assert deleted.left_to_their_readers([r0]) == {r0}
    await asyncio.sleep(29)
    assert deleted.left_to_their_readers([r0]) == {r0}
    await asyncio.sleep(1)
    assert deleted.left_to_their_readers([r0]) == set()
