"""The ranges without a lease: ancestors in the picture, or what is yet to be read."""

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.page.lineage import unleased


async def ranges_of(feed: MemoryFeed) -> list[FeedRange]:
    return list(await feed.ranges())


async def test_what_was_split_and_forgotten_is_an_ancestor() -> None:
    feed = MemoryFeed(1)
    feed.split(RangeId("r0"))
    children = [x.id for x in await ranges_of(feed)][1:]
    past, rows = unleased(await ranges_of(feed), children)
    assert ([x.name for x in past], rows) == (["r0"], [])


async def test_what_a_leased_range_goes_on_in_waits_for_its_end() -> None:
    feed = MemoryFeed(1)
    feed.split(RangeId("r0"))
    past, rows = unleased(await ranges_of(feed), {RangeId("r0")})
    assert past == []
    assert {(x.state, x.note) for x in rows} == {("waiting", "for the end of r0")}


async def test_a_range_that_no_host_has_seen_has_no_lease_yet() -> None:
    past, rows = unleased(await ranges_of(MemoryFeed(2)), {RangeId("r0")})
    assert past == []
    assert [(x.name, x.state, x.note) for x in rows] == [
        ("r1", "unowned", "there is no lease of it yet")
    ]
