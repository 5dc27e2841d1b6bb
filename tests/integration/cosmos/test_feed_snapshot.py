"""A snapshot and then all versions, through whatever becomes of items and ranges."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import (
    Change,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
)
from tests.integration.cosmos.test_feed_under_host import running_host, settings
from tests.support.cosmos_feeds import CosmosWorld, Seen
from tests.support.cosmos_history import Found, History, told
from tests.support.looking import until
from tests.support.processes import PATIENCE

_STEPS = 15


async def read(
    world: CosmosWorld, found: FeedRange, after: Position, limit: int
) -> Page | RangeEnded:
    """Read a page with a feed that remembers nothing."""
    async with world.feed("all-versions") as feed:
        try:
            page: Page = await feed.read(found, after, limit)
        except RangeEnded as ended:
            return ended
        return page


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_there_and_then_each_version_is_read_whatever_happens_meanwhile(
    world: CosmosWorld, seed: int
) -> None:
    random = Random(seed)
    history = History(world=world, random=random)
    for _ in range(5):
        await history.happens()
    async with world.feed("all-versions") as feed:
        at = {x: await feed.start(x, "snapshot") for x in await feed.ranges()}
    begun, found, quiet = history.counts(), list[Change](), set[FeedRange]()
    while quiet != at.keys():
        if random.random() < 0.5 and history.steps < _STEPS:
            await history.happens()
            quiet = set()
        place = random.choice(sorted(at, key=lambda x: x.id))
        page = await read(world, place, at[place], random.choice([1, 2, 100]))
        if isinstance(page, RangeEnded):
            del at[place]
            at |= {x.range: x.start for x in page.children}
            continue
        quiet = quiet - {place} if page.changes or history.steps < _STEPS else quiet | {place}
        at[place], kept = page.position, page.changes
        if kept and random.random() < 0.3:  # its host dies with a checkpoint in its midst
            kept = kept[: random.randrange(len(kept)) + 1]
            async with world.feed("all-versions") as feed:
                at[place] = feed.position_after(kept[-1])
        found += kept
    assert not history.missed(map(told, found), begun)


async def test_a_snapshot_ends_where_the_versions_began_and_a_replica_that_is_behind_waits(
    world: CosmosWorld,
) -> None:
    zero = FeedRange(id=RangeId("0"))
    for n in range(3):
        await world.put(f"i{n}", n=n)
    async with world.feed("all-versions") as feed:
        start = await feed.start(zero, "snapshot")
        assert start == '"snapshot-0-3"'
        assert await feed.lags({zero: start}) == {zero.id: 3}
        await world.put("i0", n=7)
        raw = await feed.fetch(zero, start, 10)
        assert [*feed.rows(zero.id, raw).ids] == ["i1", "i2"]
        page = await feed.read(zero, start, 10)
        assert [told(x) for x in page.changes] == [("i1", "snapshot", 1), ("i2", "snapshot", 2)]
        assert page.position == '"snapshot-3-3"'
        page = await feed.read(zero, page.position, 10)
        assert [told(x) for x in page.changes] == [("i0", "replace", 7)]
        assert page.position == '"4"'
        last = await feed.read(zero, Position('"snapshot-2-3"'), 10)
        assert [told(x) for x in last.changes] == [("i2", "snapshot", 2)]
        await world.put("i2", n=8)  # what is left of the snapshot is in the versions now
        for found in (
            (await feed.read(zero, Position('"snapshot-2-3"'), 10)).changes,
            feed.rows(zero.id, await feed.fetch(zero, Position('"snapshot-2-3"'), 10)),
        ):
            assert len(found) == 2
        await feed.read(zero, Position('"snapshot-5-9"'), 10)
        behind = await feed.read(zero, Position('"snapshot-5-9"'), 10)
        assert (behind.changes, behind.position) == ([], '"snapshot-5-9"')


async def test_only_a_feed_of_all_versions_starts_with_a_snapshot(world: CosmosWorld) -> None:
    async with world.feed("latest-version") as feed:
        with pytest.raises(FeedRefused, match="Start from the beginning"):
            await feed.start(FeedRange(id=RangeId("0")), "snapshot")


class Told(Seen):
    """What observers were given, of whatever items."""

    def __init__(self) -> None:
        super().__init__(())
        self.found: list[Found] = []

    async def see(self, changes: Sequence[Change]) -> None:
        self.found += map(told, changes)


async def test_a_fleet_starts_with_a_snapshot_and_goes_on_with_each_version(
    world: CosmosWorld, tmp_path: Path
) -> None:
    history, seen = History(world=world, random=Random(3)), Told()
    for _ in range(5):
        await history.happens()
    address = f"{world.url.replace('http:', 'cosmos+http:')}d/c?mode=all-versions"
    config = settings(
        world, tmp_path / "leases.db", page_size=2, address=address, start="snapshot"
    )
    begun = history.counts()
    for _ in range(4):  # hosts, one after the other
        known = len(seen.found)
        async with running_host(config, seen):
            await until(partial(lambda x: len(seen.found) > x, known), within=PATIENCE)
            await history.happens()
        await history.happens()
    async with running_host(config, seen):
        await until(lambda: not history.missed(seen.found, begun), within=PATIENCE)
