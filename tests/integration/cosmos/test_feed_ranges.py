"""Splits and merges under a reader, and while nobody was reading: nothing lost or twice."""

import pytest

from changefeed.feeds.cosmos import requests
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Position, RangeEnded
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import RangeEnd
from tests.support import make
from tests.support.cosmos_feeds import CosmosWorld

KEYS = [f"key-{n}" for n in range(24)]


async def test_a_feed_that_another_one_showed_the_split_ends_its_range_too(
    world: CosmosWorld,
) -> None:
    """The client shares one list of ranges among all feeds of a process."""
    await world.write(KEYS, 0)
    async with world.feed() as first, world.feed() as second:
        await world.by_hand.split(range="0")
        assert len(await second.ranges()) == 2
        for start in ('"0"', '"3"'):
            with pytest.raises(RangeEnded) as ended:
                await first.read(make.feed_range("0"), Position(start), 5)
            assert [x.start for x in ended.value.children] == [start, start]


async def test_while_a_split_is_going_on_the_reader_is_asked_to_wait_with_one_request(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.fault(effect="error", operation="change_feed", status=410, substatus=1007)
    await world.counted()
    with pytest.raises(FeedUnavailable, match="being split or merged"):
        await feed.read(make.feed_range("0"), Position('"0"'), 5)
    assert (await world.counted())["change_feed"] == {"410": 1}


async def test_what_goes_on_after_a_range_is_the_latest_there_is(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    low, high = await world.by_hand.split(range="0")
    assert len(await feed.ranges()) == 2
    children = await world.by_hand.split(range=low["id"])
    with pytest.raises(RangeEnded) as ended:
        await feed.read(make.feed_range("0"), Position('"0"'), 5)
    names = [x.range.id for x in ended.value.children]
    assert names == [*(x["id"] for x in children), high["id"]]


async def test_nobody_is_offered_a_merged_range_whose_halves_are_being_read(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    low, high = await world.by_hand.split(range="0")
    await feed.ranges()
    merged = await world.by_hand.merge(low["id"], high["id"])
    one, two = (make.feed_range(x["id"], x["low"], x["high"]) for x in (low, high))
    with pytest.raises(RangeEnded) as ended:
        await feed.read(one, Position('"0"'), 5)
    (half,) = ended.value.children
    (listed,) = await feed.ranges()
    assert listed.id == merged["id"]
    tombstone = make.lease(one, epoch=1, end=RangeEnd(children=(half,)))
    other = make.lease(two, epoch=1)
    keymap = KeyMap([tombstone, other], ranges=[listed])
    assert (keymap.gaps(), [x.child for x in keymap.new_leases]) == ([], [half])
    begun = make.lease(half.range, epoch=1)
    keymap = KeyMap([tombstone, other, begun], ranges=[listed])
    assert (keymap.gaps(), keymap.new_leases) == ([], [])


async def test_a_list_of_ranges_with_a_gap_is_not_believed(
    feed: CosmosFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = make.feed_range("1", high="1F", parents="0")
    monkeypatch.setattr(requests, "_ranges_in", lambda _: ([part], ""))
    with pytest.raises(FeedUnavailable, match="gaps"):
        await feed.ranges()
    monkeypatch.undo()
    assert [x.id for x in await feed.ranges()] == ["0"]


async def test_a_part_that_was_split_and_is_whole_again_goes_on(world: CosmosWorld) -> None:
    await world.write(KEYS, 0)
    low, high = (x["id"] for x in await world.by_hand.split(range="0"))
    merged = (await world.by_hand.merge(low, high))["id"]
    async with world.feed() as feed:
        (whole,) = await feed.ranges()
        part, _ = feed.split(whole, 2)
        start = await feed.start(part, "beginning")
        halves = await world.by_hand.split(range=merged)
        parts = await world.by_hand.split(range=halves[0]["id"])
        await feed.ranges()
        await world.by_hand.merge(*(x["id"] for x in parts))
        assert (await feed.read(part, start, 5)).changes
