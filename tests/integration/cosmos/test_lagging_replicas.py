"""A read replica that is behind answers with an older etag: it never moves a reader back."""

import pytest

from changefeed.feeds.cosmos import feed as feed_module
from changefeed.feeds.feed import FeedRange, Position, RangeId
from tests.support.cosmos_feeds import CosmosWorld

AHEAD = Position('"7052"')


async def moved(world: CosmosWorld, how: str) -> FeedRange:
    """Split a range, or split and merge it; return one that holds keys of it now."""
    low, high = await world.by_hand.split(range="0")
    if how == "split":
        return FeedRange(id=RangeId(low["id"]))
    merged = await world.by_hand.merge(low["id"], high["id"])
    return FeedRange(id=RangeId(merged["id"]))


@pytest.mark.parametrize("how", ["split", "merged"])
async def test_an_empty_page_of_a_range_that_was_split_or_merged_moves_no_reader_back(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    await world.put("a")
    found = await moved(world, how)
    async with world.feed() as feed:
        for _ in range(3):
            page = await feed.read(found, AHEAD, 5)
            assert (list(page.changes), page.position) == ([], AHEAD)
        monkeypatch.setattr(feed_module, "_REPLICA_LAG", 0.0)
        page = await feed.read(found, AHEAD, 5)  # for so long no replica lags: LSNs began again
        assert page.position != AHEAD


async def test_what_was_written_while_a_range_was_behind_is_read_once_it_counts_again(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put("a")
    found = await moved(world, "merged")
    async with world.feed() as feed:
        assert (await feed.read(found, AHEAD, 5)).position == AHEAD
        await world.put("b")
        monkeypatch.setattr(feed_module, "_REPLICA_LAG", 0.0)
        first_seen = (await feed.read(found, AHEAD, 5)).position
        assert [x.id for x in (await feed.read(found, first_seen, 5)).changes] == ["b"]
