"""What every feed promises of ranges that end and go on in others, as tests over the fixture
``given``.
"""

from changefeed.feeds.backlog import lag_of
from changefeed.log.records import Record
from changefeed.testing.feed_harness import (
    RANGES,
    FeedAbility,
    FeedHarness,
    busiest,
    ended,
    everything,
    needs,
    numbered,
    pages_from,
    to_its_end,
    whole,
)


async def test_a_split_range_is_read_to_its_end_and_goes_on_in_its_children(
    given: FeedHarness,
) -> None:
    needs(given, FeedAbility.ENDED_ARE_READ)
    await given.append(numbered(100))
    parent = await busiest(given.feed)
    before = await whole(given.feed, parent)
    await given.split(parent.id)
    await given.append(numbered(100, 100))

    beginning = await given.feed.start(parent, "beginning")
    page = await given.feed.read(parent, beginning, 1000)
    assert [*page.changes] == before  # its own changes first, then the news of its end
    children = await ended(given.feed, parent, page.position)
    assert await lag_of(given.feed, parent, page.position) in {None, 0}
    assert [x.range.parents for x in children] == [(parent.id,), (parent.id,)]
    after = []
    for x in children:
        changes, _ = await pages_from(given.feed, x.range, x.start, 1000)
        assert changes == await whole(given.feed, x.range)
        assert changes
        after += changes
    seen = {parent.id, *(x.range.id for x in children)}
    others = [
        x
        for r in await given.feed.ranges()
        if r.id not in seen
        for x in await everything(given.feed, r)
    ]
    assert {x.key for x in [*before, *after, *others]} == {x.key for x in numbered(200)}
    assert len(before) + len(after) + len(others) == 200


async def test_all_that_was_not_read_before_a_split_is_read_once_after_it(
    given: FeedHarness,
) -> None:
    await given.append(numbered(100))
    parent = await busiest(given.feed)
    beginning = await given.feed.start(parent, "beginning")
    page = await given.feed.read(parent, beginning, 5)
    owned = {x.key for x in await whole(given.feed, parent)}
    await given.split(parent.id)
    await given.append(numbered(100))
    rest, children = await to_its_end(given.feed, parent, page.position)
    assert [x.range.parents for x in children] == [(parent.id,), (parent.id,)]
    after = []
    for x in children:
        assert x.range in await given.feed.ranges()
        after += (await pages_from(given.feed, x.range, x.start, 7))[0]
    keys = [x.key for x in [*page.changes, *rest, *after]]
    assert sorted(keys) == sorted([*owned, *owned])


async def test_a_range_that_ended_empty_still_names_its_children(given: FeedHarness) -> None:
    (r, *_) = await given.feed.ranges()
    start = await given.feed.start(r, "beginning")
    now = await given.feed.start(r, "now")
    await given.split(r.id)
    assert await ended(given.feed, r, start) == await ended(given.feed, r, now)


async def test_each_key_keeps_its_order_through_splits_and_merges(given: FeedHarness) -> None:
    keys = [f"key-{n}" for n in range(40)]
    step = 0

    async def append_to_all() -> None:
        nonlocal step
        await given.append([Record(key=x, body=b"%d" % step) for x in keys])
        step += 1

    await append_to_all()
    parent = await busiest(given.feed)
    await given.split(parent.id)
    await append_to_all()
    await append_to_all()
    children = [x.id for x in await given.feed.ranges() if x.parents == (parent.id,)]
    await given.merge(children)
    await append_to_all()

    seen: dict[str, list[int]] = {}
    for r in await given.feed.ranges():  # parents come first
        beginning = await given.feed.start(r, "beginning")
        for change in (await given.feed.read(r, beginning, 1000)).changes:
            seen.setdefault(change.key, []).append(int(change.body))
    assert seen == {x: [0, 1, 2, 3] for x in keys}


async def test_parents_are_listed_before_their_children_and_bounds_are_passed_on(
    given: FeedHarness,
) -> None:
    needs(given, FeedAbility.ENDED_ARE_READ)
    first = await given.feed.ranges()
    assert len(first) == RANGES
    await given.split(first[1].id)
    children = [x for x in await given.feed.ranges() if x.parents == (first[1].id,)]
    await given.merge([x.id for x in children])
    ranges = await given.feed.ranges()
    assert list(ranges[:RANGES]) == list(first)
    places = {x.id: n for n, x in enumerate(ranges)}
    assert all(places[p] < places[x.id] for x in ranges for p in x.parents)
    low, high = children
    assert (low.low, low.high, high.high) == (first[1].low, high.low, first[1].high)
    assert low.low < low.high < high.high
    (merged,) = (x for x in ranges if x.parents == (low.id, high.id))
    assert (merged.low, merged.high) == (first[1].low, first[1].high)
