"""What feeds that read parts of ranges promise, as tests over the fixture ``given``."""

from dataclasses import replace
from itertools import pairwise

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedRefused, RangeRefused, RangeUnknown
from changefeed.feeds.feed import (
    BoundedFeed,
    Change,
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.log.records import Record
from changefeed.testing.feed_harness import (
    FeedHarness,
    busiest,
    numbered,
    pages_from,
    whole,
)


async def in_parts(given: FeedHarness) -> Feed:
    """Return the feed as hosts have it; skip the test if it reads no parts of ranges."""
    feed = BoundedFeed(given.feed, timeout=60.0)
    (found, *_) = await feed.ranges()
    try:
        feed.split(found, 2)
    except FeedRefused as refused:
        pytest.skip(f"not this feed: {refused}")
    return feed


async def of_lasting_ranges(given: FeedHarness) -> Feed:
    """Return it likewise; skip the test if its ranges are not kept when they have ended."""
    feed = await in_parts(given)
    if feed.children_inherit_positions:
        pytest.skip("not this feed: its parts do not end with their range")
    return feed


async def full_range(given: FeedHarness, count: int = 300) -> FeedRange:
    """Return the range with most of so many changes."""
    await given.append(numbered(count))
    return await busiest(given.feed)


def named(changes: list[Change]) -> list[tuple[int, str, bytes]]:
    return [(x.sequence, x.key, x.body) for x in changes]


@pytest.mark.parametrize("into", [2, 3, 7])
async def test_parts_hold_each_change_of_their_range_once_and_in_its_order(
    given: FeedHarness, into: int
) -> None:
    feed, found = await in_parts(given), await full_range(given)
    parts = feed.split(found, into)
    assert [(x.low, x.parents) for x in parts[1:]] == [(x.high, ()) for x in parts[:-1]]
    assert all(x.of == found.id and x.generation > found.generation for x in parts)
    assert (parts[0].low, parts[-1].high) == (found.low, found.high)
    read = [await whole(feed, x, limit=7) for x in parts]
    assert sum(map(bool, read)) > 1
    assert all(x.sequence < y.sequence for changes in read for x, y in pairwise(changes))
    of_all = sorted(named([x for changes in read for x in changes]))
    assert of_all == named(await whole(feed, found))


async def test_a_change_keeps_its_name_when_its_range_is_split_and_merged(
    given: FeedHarness,
) -> None:
    feed, found = await in_parts(given), await full_range(given)
    names = {(x.range_id, x.sequence): x.key for x in await whole(feed, found)}
    first, second, third = feed.split(found, 3)
    merged = feed.merge([first, second])
    again = feed.split(merged, 2)
    for parts in ((first, second, third), (merged, third), (*again, third)):
        read = [x for part in parts for x in await whole(feed, part)]
        assert {(x.range_id, x.sequence): x.key for x in read} == names


async def test_a_position_in_a_range_is_one_in_each_part_of_it(given: FeedHarness) -> None:
    feed, found = await in_parts(given), await full_range(given)
    changes = await whole(feed, found)
    after = feed.position_after(changes[len(changes) // 2])
    rest = named((await pages_from(feed, found, after, 1000))[0])
    in_its_parts = [
        x for part in feed.split(found, 3) for x in (await pages_from(feed, part, after, 7))[0]
    ]
    assert sorted(named(in_its_parts)) == rest


async def test_parts_that_were_cut_are_joined_and_cut_again(given: FeedHarness) -> None:
    feed, found = await in_parts(given), await full_range(given)
    first, second, third = feed.split(found, 3)
    both = feed.merge([first, second])
    assert (both.low, both.high) == (first.low, second.high)
    halves = [x for part in feed.split(both, 2) for x in await whole(feed, part)]
    of_both = [*await whole(feed, first), *await whole(feed, second)]
    assert sorted(named(halves)) == sorted(named(of_both))
    everything = feed.merge([both, third])
    assert named(await whole(feed, everything)) == named(await whole(feed, found))


async def test_a_part_at_its_end_stands_where_its_range_ends_whatever_it_holds(
    given: FeedHarness,
) -> None:
    feed, found = await of_lasting_ranges(given), await full_range(given, 30)
    parts = feed.split(found, 4)
    before = [len(await whole(feed, x)) for x in parts]
    (key,) = {x.key for x in (await whole(feed, found))[-1:]}
    await given.append([Record(key=key, body=b"%d" % n) for n in range(40)])
    after = [len(await whole(feed, x)) for x in parts]
    assert sum(x != y for x, y in zip(before, after, strict=True)) == 1
    end = await feed.start(found, "now")
    for part in parts:
        beginning = await feed.start(part, "beginning")
        _, reached = await pages_from(feed, part, beginning, 7)
        assert reached == end == await feed.start(part, "now")
        assert await lag_of(feed, part, reached) in {None, 0}


async def test_a_part_ends_with_its_range_and_goes_on_in_what_shares_keys(
    given: FeedHarness,
) -> None:
    feed, found = await of_lasting_ranges(given), await full_range(given)
    parts = feed.split(found, 4)
    await given.split(found.id)
    children = [x for x in await feed.ranges() if found.id in x.parents]
    for part in parts:
        changes = await whole_to_its_end(feed, part)
        with pytest.raises(RangeEnded) as ended:
            await feed.read(part, changes[-1], 10)
        assert ended.value.range_id == part.id
        following = [x.range for x in ended.value.children]
        assert following == [x for x in children if x.shares_keys_with(part)]
        assert 0 < len(following) < len(children)


async def whole_to_its_end(feed: Feed, found: FeedRange) -> list[Position]:
    """Return the positions of a reader of a range that has ended."""
    positions = [await feed.start(found, "beginning")]
    while True:
        try:
            page = await feed.read(found, positions[-1], 7)
        except RangeEnded:
            return positions
        assert page.changes
        positions.append(page.position)


async def test_a_part_says_which_range_it_belongs_to_and_no_range_does(
    given: FeedHarness,
) -> None:
    feed, found = await of_lasting_ranges(given), await full_range(given)
    first, second = feed.split(found, 2)
    assert [x.of for x in (first, second, found)] == [found.id, found.id, None]
    assert [x.of for x in feed.split(second, 2)] == [found.id, found.id]
    assert feed.merge(feed.split(second, 2)).of == found.id
    assert feed.sub_range(found, first.low, first.high) == first


async def test_what_no_single_range_holds_is_not_joined(given: FeedHarness) -> None:
    feed = await of_lasting_ranges(given)
    first, second, *_ = await feed.ranges()
    for parts in ([first, second], [feed.split(first, 2)[1], feed.split(second, 2)[0]]):
        with pytest.raises(FeedRefused):
            feed.merge(parts)


async def test_a_part_of_no_range_is_unknown_and_what_is_no_position_refused(
    given: FeedHarness,
) -> None:
    feed, found = await of_lasting_ranges(given), await full_range(given)
    part = feed.split(found, 2)[0]
    start = await feed.start(part, "beginning")
    for name in (f"nowhere{part.id}", f"{part.id}0"):
        wrong = replace(part, id=RangeId(name), of=None)
        with pytest.raises(RangeUnknown):
            await feed.read(wrong, start, 10)
        assert await lag_of(feed, wrong, start) is None
    with pytest.raises(RangeRefused) as refused:
        await feed.read(part, Position("gibberish"), 10)
    assert refused.value.range_id == part.id
