"""Moving a position: by whom it may be done, and what comes of hosts in the way."""

import asyncio

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.reset import carry_out, planned, refuse_in_use
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import UserError
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.looking import lease_in
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

R0 = RangeId("r0")
BETA = HostName("beta")


async def read_up_to_the_end(changes: int) -> tuple[MemoryFeed, MemoryLeases]:
    """A range with so many changes, all of them observed, that nobody owns."""
    feed, container = MemoryFeed(ranges=1), MemoryLeases()
    for n in range(changes):
        feed.append(f"key-{n}", b"{}")
    end = await feed.start(FeedRange(id=R0), "now")
    (only,) = await feed.ranges()
    await container.create(make.lease(only, at=end))
    return feed, container


async def test_what_lies_after_the_new_position_is_delivered_again() -> None:
    feed, container = await read_up_to_the_end(10)
    move = await planned(feed, container, R0, "beginning")
    assert move.again == 10
    await carry_out(container, move)
    async with Fleet(feed, container) as fleet:
        fleet.start("anna")
        await asyncio.sleep(20)
        assert [n for _, _, n in fleet.log.delivered] == list(range(1, 11))


async def test_a_half_of_a_merged_range_is_reset_from_a_feed_that_never_saw_it_alive() -> None:
    store, container = ShiftingStore(), MemoryLeases()
    store.split(RangeId("0"))
    for half in store.physical:
        await container.create(make.lease(half, at='"0"'))
    store.merge(0)
    move = await planned(ShiftingReader(store), container, RangeId("1"), '"0"')
    assert (move.range_id, move.to) == ("1", '"0"')


async def test_a_position_is_tried_on_the_feed_before_it_is_written() -> None:
    feed, container = await read_up_to_the_end(10)
    (third,) = (
        await feed.read(FeedRange(id=R0), await feed.start(FeedRange(id=R0), "beginning"), 3)
    ).changes[2:]
    move = await planned(feed, container, R0, feed.position_after(third))
    assert (move.to, move.again) == (feed.position_after(third), 7)
    with pytest.raises(FeedRefused):
        await planned(feed, container, R0, "nonsense")
    with pytest.raises(LeaseConflict, match="no such lease"):
        await planned(feed, container, RangeId("r9"), "now")


async def test_the_owner_of_a_paused_range_cannot_write_over_the_new_position() -> None:
    feed, container = await read_up_to_the_end(10)
    mine = await container.acquire((await lease_in(container)).taken_by(BETA, Incarnation("1")))
    await container.replace((await lease_in(container)).paused_because("to reset it"))
    await asyncio.wait_for(refuse_in_use(container, [R0], make.fleet_watch()), 0.1)
    move = await planned(feed, container, R0, "beginning")
    busy = await container.replace((await lease_in(container)).renewed())  # still at it
    await carry_out(container, move)
    moved = await lease_in(container)
    assert (moved.owner, moved.position) == (None, move.to)
    assert moved.paused == "to reset it"
    assert (mine.epoch, moved.epoch) == (1, 2)
    assert busy.version != moved.version


async def test_a_host_that_takes_the_range_in_the_midst_of_it_keeps_its_position() -> None:
    feed, container = await read_up_to_the_end(10)
    move = await planned(feed, container, R0, "beginning")

    async def quick(name: str, call: object) -> object:
        answer = await call()  # type: ignore[operator]
        if name == "acquire":
            await container.acquire(
                (await lease_in(container)).taken_by(BETA, Incarnation("1"))
            )
        return answer

    with pytest.raises(UserError, match="owned by beta"):
        await carry_out(proxied(container, quick), move)
    assert (await lease_in(container)).position == move.lease.position
