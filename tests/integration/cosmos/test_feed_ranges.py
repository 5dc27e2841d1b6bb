"""Splits and merges under a reader, and while nobody was reading: nothing lost or twice."""

from collections import Counter
from random import Random

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.cosmos import requests
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import Change, FeedRange, Position, RangeEnded, RangeId
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, RangeEnd
from tests.support.cosmos_feeds import CosmosWorld

KEYS = [f"key-{n}" for n in range(24)]


class Reader:
    """Reads a feed as a fleet would: a lease for each range, replaced when it ends.

    Its leases are all that outlives it.
    """

    def __init__(self) -> None:
        self.leases: dict[RangeId, tuple[FeedRange, Position]] = {}
        self.seen: list[Change] = []

    async def begin(self, feed: CosmosFeed) -> None:
        found = await feed.ranges()
        for x in [] if self.leases else found:
            self.leases[x.id] = (x, await feed.start(x, "beginning"))
        leases = [Lease(range=x, epoch=1) for x, _ in self.leases.values()]
        assert not KeyMap(leases, ranges=found).gaps()

    async def read(self, feed: CosmosFeed, *, pages: int = 1000, limit: int = 5) -> None:
        """Read until there is nothing for now, or so many pages of each range."""
        for range_id in list(self.leases):
            await self._read_range(feed, range_id, pages, limit)

    async def _read_range(
        self, feed: CosmosFeed, range_id: RangeId, pages: int, limit: int
    ) -> None:
        for _ in range(pages):
            owned, after = self.leases[range_id]
            try:
                page = await feed.read(owned, after, limit)
            except RangeEnded as ended:
                del self.leases[range_id]
                for x in ended.children:
                    assert x.range.id not in self.leases
                    self.leases[x.range.id] = (x.range, x.start)
                    await self._read_range(feed, x.range.id, pages, limit)
                return
            self.leases[range_id] = (owned, page.position)
            if not page.changes:
                return
            self.seen += page.changes

    def steps_by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for x in self.seen:
            found.setdefault(x.key, []).append(x.value()["step"])
        return found


async def write(world: CosmosWorld, step: int) -> None:
    """Write a new item of every key; items stay, so that no version is replaced."""
    for key in KEYS:
        await world.put(f"{key}-{step}", key, step=step)


async def test_a_lease_without_bounds_is_not_followed_through_a_merge(
    world: CosmosWorld,
) -> None:
    low, high = await world.by_hand.split(range="0")
    await world.by_hand.merge(low["id"], high["id"])
    async with world.feed() as feed:
        with pytest.raises(FeedRefused, match="was merged with another"):
            await feed.read(FeedRange(id=RangeId(low["id"])), Position('"0"'), 5)
        bounded = FeedRange(id=RangeId(low["id"]), low=low["low"], high=low["high"])
        with pytest.raises(RangeEnded):
            await feed.read(bounded, Position('"0"'), 5)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_split_and_merged_every_change_is_read_once_and_in_order(
    world: CosmosWorld, seed: int
) -> None:
    random, reader = Random(seed), Reader()
    async with world.feed() as first:
        await reader.begin(first)
    for step in range(6):
        await write(world, step)
        for _ in range(random.randrange(3)):
            await change_ranges(world, random)
        if random.random() < 0.7:
            async with world.feed() as feed:
                await reader.begin(feed)
                await reader.read(feed, pages=random.randrange(1, 4), limit=3)
                await change_ranges(world, random)
                await reader.read(feed, pages=1)
    async with world.feed() as feed:
        await reader.begin(feed)
        await reader.read(feed)
        assert {await lag_of(feed, x, after) for x, after in reader.leases.values()} == {0}
    assert reader.steps_by_key() == {x: list(range(6)) for x in KEYS}
    assert max(Counter(x.id for x in reader.seen).values()) == 1


async def change_ranges(world: CosmosWorld, random: Random) -> None:
    state = await world.by_hand.control("GET", "")
    (container,) = state
    living = [x for x in container["ranges"] if not x["gone"]]
    living.sort(key=lambda x: x["low"])
    if len(living) > 1 and random.random() < 0.5:
        at = random.randrange(len(living) - 1)
        await world.by_hand.merge(*(x["id"] for x in living[at : at + 2]))
    else:
        await world.by_hand.split(range=random.choice(living)["id"])


async def test_a_feed_that_another_one_showed_the_split_ends_its_range_too(
    world: CosmosWorld,
) -> None:
    """The client shares one list of ranges among all feeds of a process."""
    await write(world, 0)
    async with world.feed() as first, world.feed() as second:
        await world.by_hand.split(range="0")
        assert len(await second.ranges()) == 2
        for start in ('"0"', '"3"'):
            with pytest.raises(RangeEnded) as ended:
                await first.read(FeedRange(id=RangeId("0")), Position(start), 5)
            assert [x.start for x in ended.value.children] == [start, start]


async def test_while_a_split_is_going_on_the_reader_is_asked_to_wait_with_one_request(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.fault(effect="error", operation="change_feed", status=410, substatus=1007)
    await world.counted()
    with pytest.raises(FeedUnavailable, match="being split or merged"):
        await feed.read(FeedRange(id=RangeId("0")), Position('"0"'), 5)
    assert (await world.counted())["change_feed"] == {"410": 1}


async def test_what_goes_on_after_a_range_is_the_latest_there_is(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    low, high = await world.by_hand.split(range="0")
    assert len(await feed.ranges()) == 2
    children = await world.by_hand.split(range=low["id"])
    with pytest.raises(RangeEnded) as ended:
        await feed.read(FeedRange(id=RangeId("0")), Position('"0"'), 5)
    names = [x.range.id for x in ended.value.children]
    assert names == [*(x["id"] for x in children), high["id"]]


async def test_nobody_is_offered_a_merged_range_whose_halves_are_being_read(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    low, high = await world.by_hand.split(range="0")
    await feed.ranges()
    merged = await world.by_hand.merge(low["id"], high["id"])
    one, two = (
        FeedRange(id=RangeId(x["id"]), low=x["low"], high=x["high"]) for x in (low, high)
    )
    with pytest.raises(RangeEnded) as ended:
        await feed.read(one, Position('"0"'), 5)
    (half,) = ended.value.children
    (listed,) = await feed.ranges()
    assert listed.id == merged["id"]
    tombstone = Lease(range=one, epoch=1).ended_in(RangeEnd(children=(half,)))
    other = Lease(range=two, epoch=1)
    keymap = KeyMap([tombstone, other], ranges=[listed])
    assert (keymap.gaps(), [x.child for x in keymap.new_leases]) == ([], [half])
    begun = Lease(range=half.range, epoch=1)
    keymap = KeyMap([tombstone, other, begun], ranges=[listed])
    assert (keymap.gaps(), keymap.new_leases) == ([], [])


async def test_a_list_of_ranges_with_a_gap_is_not_believed(
    feed: CosmosFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = FeedRange(id=RangeId("1"), low="", high="1F", parents=(RangeId("0"),))
    monkeypatch.setattr(requests, "_ranges_in", lambda _: ([part], ""))
    with pytest.raises(FeedUnavailable, match="gaps"):
        await feed.ranges()
    monkeypatch.undo()
    assert [x.id for x in await feed.ranges()] == ["0"]


async def test_a_part_that_was_split_and_is_whole_again_goes_on(world: CosmosWorld) -> None:
    await write(world, 0)
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
