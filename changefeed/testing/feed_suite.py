"""What every feed promises, as tests over the fixture ``given``: a ``FeedHarness``."""

import asyncio
import pickle
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import (
    FeedRefused,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import (
    BoundedFeed,
    Change,
    FeedRange,
    Operation,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.log.records import Record
from changefeed.testing.feed_harness import (
    NEW_YEAR,
    NEW_YEAR_US,
    RANGES,
    FeedAbility,
    FeedHarness,
    busiest,
    needs,
    numbered,
    pages_from,
    whole,
)


async def test_every_change_is_in_one_range_and_comes_back_as_it_went_in(
    given: FeedHarness,
) -> None:
    await given.append(numbered(300))
    found = [x for r in await given.feed.ranges() for x in await whole(given.feed, r)]
    assert {x.key: x.body for x in found} == {x.key: x.body for x in numbered(300)}
    assert len(found) == 300
    assert {(x.id == x.key, x.previous) for x in found} == {(True, None)}
    if FeedAbility.RECORDS_AS_GIVEN in given.can:
        assert {x.operation for x in found} == {Operation.INSERT}
        assert {x.committed_us for x in found} == {NEW_YEAR_US}


async def test_a_feed_has_one_identity_for_all_its_readers(given: FeedHarness) -> None:
    assert given.feed.identity
    bounded = BoundedFeed(given.feed, timeout=1.0)
    assert bounded.identity == given.feed.identity


@pytest.mark.parametrize("limit", [1, 7, 256, 1000])
async def test_pages_of_any_size_give_the_same_changes_in_the_same_order(
    given: FeedHarness, limit: int
) -> None:
    for begin in range(0, 900, 300):
        await given.append(numbered(300, begin))
    for r in await given.feed.ranges():
        changes = await whole(given.feed, r, limit)
        assert changes == await whole(given.feed, r)
        assert [x.sequence for x in changes] == sorted({x.sequence for x in changes})
        assert [int(x.body) for x in changes] == sorted(int(x.body) for x in changes)
        assert {x.range_id for x in changes} == {r.id}


async def test_reading_goes_on_after_any_change_with_the_next_one(given: FeedHarness) -> None:
    await given.append(numbered(200))
    found = await busiest(given.feed)
    changes = await whole(given.feed, found)
    for n, change in enumerate(changes):
        after = given.feed.position_after(change)
        page = await given.feed.read(found, after, 3)
        assert list(page.changes) == changes[n + 1 : n + 4]
        assert await lag_of(given.feed, found, after) in {None, len(changes) - n - 1}


async def test_the_same_position_gives_the_same_changes_again(given: FeedHarness) -> None:
    await given.append(numbered(50))
    found = await busiest(given.feed)
    beginning = await given.feed.start(found, "beginning")
    first = await given.feed.read(found, beginning, 5)
    await given.append(numbered(50, 50))
    assert await given.feed.read(found, beginning, 5) == first


async def test_a_change_larger_than_a_page_should_be_comes_alone_and_whole(
    given: FeedHarness,
) -> None:
    needs(given, FeedAbility.LARGE)
    large = b'"' + b"x" * 9_000_000 + b'"'
    await given.append([Record(key="a", body=body) for body in (b"1", large, large, b"2")])
    (found,) = [x for x in await given.feed.ranges() if await whole(given.feed, x)]
    assert [x.body for x in await whole(given.feed, found)] == [b"1", large, large, b"2"]


async def test_the_position_of_an_empty_page_finds_what_comes_later(given: FeedHarness) -> None:
    empty: dict[FeedRange, Position] = {}
    for r in await given.feed.ranges():
        page = await given.feed.read(r, await given.feed.start(r, "beginning"), 10)
        assert not page.changes
        empty[r] = page.position
    await given.append(numbered(60))
    for r, after in empty.items():
        later, end = await pages_from(given.feed, r, after, 10)
        assert later
        assert later == await whole(given.feed, r)
        assert not (await given.feed.read(r, end, 10)).changes


async def test_now_is_settled_once_and_stays_where_it_was(given: FeedHarness) -> None:
    await given.append(numbered(60))
    ranges = await given.feed.ranges()
    settled = {x: await given.feed.start(x, "now") for x in ranges}
    await given.append(numbered(60, 60))
    for r, now in settled.items():
        changes, _ = await pages_from(given.feed, r, now, 1000)
        assert changes
        assert changes == [x for x in await whole(given.feed, r) if int(x.body) >= 60]


def at(seconds: int) -> Record:
    return Record(key="one key", committed_us=NEW_YEAR_US + seconds * 1_000_000)


@pytest.mark.parametrize(
    ("start", "seconds"),
    [
        (NEW_YEAR - timedelta(days=365), [10, 30, 5, 20, 40]),
        (NEW_YEAR + timedelta(seconds=10), [10, 30, 5, 20, 40]),
        (NEW_YEAR + timedelta(seconds=10, microseconds=1), [30, 5, 20, 40]),
        (NEW_YEAR + timedelta(seconds=20), [30, 5, 20, 40]),
        (NEW_YEAR + timedelta(seconds=31), [40]),
        (NEW_YEAR + timedelta(seconds=41), []),
        (datetime(1950, 1, 1, tzinfo=UTC), [10, 30, 5, 20, 40]),
        ("beginning", [10, 30, 5, 20, 40]),
    ],
)
async def test_a_time_is_before_the_first_change_committed_at_or_after_it_though_clocks_go_back(
    given: FeedHarness, start: StartAt, seconds: list[int]
) -> None:
    needs(given, FeedAbility.RECORDS_AS_GIVEN)
    for n in (10, 30, 5, 20, 40):
        await given.append([at(n)])
    found = await busiest(given.feed)
    settled = await given.feed.start(found, start)
    await given.append([at(n) for n in (1, 50)])
    changes, _ = await pages_from(given.feed, found, settled, 10)
    assert changes == (await whole(given.feed, found))[-len(seconds) - 2 :]


async def test_a_time_among_many_changes_is_found_exactly(given: FeedHarness) -> None:
    needs(given, FeedAbility.RECORDS_AS_GIVEN)
    await given.append([at(n * 7919 % 2000) for n in range(2000)])
    found = await busiest(given.feed)
    changes = await whole(given.feed, found)
    for n in range(0, 2000, 50):
        time = NEW_YEAR + timedelta(seconds=n)
        after = await given.feed.start(found, time)
        (first,) = (await given.feed.read(found, after, 1)).changes
        assert first == next(x for x in changes if x.committed_at >= time)


async def test_a_time_without_a_zone_is_refused(given: FeedHarness) -> None:
    (r, *_) = await given.feed.ranges()
    with pytest.raises(FeedRefused):
        await given.feed.start(r, NEW_YEAR.replace(tzinfo=None))


async def test_lags_count_exactly_what_lies_after_positions(given: FeedHarness) -> None:
    ranges = await given.feed.ranges()
    starts = {x: await given.feed.start(x, "beginning") for x in ranges}
    lags = await given.feed.lags(starts)
    if not lags:
        pytest.skip("not this feed: it counts no changes")
    assert lags == {x.id: 0 for x in ranges}
    await given.append(numbered(500))
    lags = await given.feed.lags(starts)
    assert lags == {x.id: len(await whole(given.feed, x)) for x in ranges}
    assert sum(lags.values()) == 500
    ends = {x: await given.feed.start(x, "now") for x in ranges}
    assert await given.feed.lags(ends) == {x.id: 0 for x in ranges}


async def test_an_unknown_range_is_unknown_to_every_method(given: FeedHarness) -> None:
    (r, *_) = await given.feed.ranges()
    start = await given.feed.start(r, "beginning")
    nowhere = FeedRange(id=RangeId("nowhere"))
    with pytest.raises(RangeUnknown, match="nowhere"):
        await given.feed.read(nowhere, start, 10)
    with pytest.raises(RangeUnknown):
        await given.feed.start(nowhere, "now")
    assert await lag_of(given.feed, nowhere, start) is None


async def test_what_is_no_position_of_a_range_is_refused_for_this_range_only(
    given: FeedHarness,
) -> None:
    (r, *_) = await given.feed.ranges()
    await given.append(numbered(30))
    end = await given.feed.start(r, "now")
    beyond = Position(end + "0")
    for wrong in ("", "-1", "gibberish", "1/2/3", "Ω/1", "/5", "²", beyond):
        with pytest.raises(RangeRefused) as refused:
            await given.feed.read(r, Position(wrong), 10)
        assert refused.value.range_id == r.id
        assert await lag_of(given.feed, r, Position(wrong)) is None


@pytest.mark.parametrize("number", [10**17, 2**62, 2**63 - 1, 10**19 - 1, 10**40])
async def test_a_position_with_a_number_too_large_raises_nothing_but_a_refusal_of_its_range(
    given: FeedHarness, number: int
) -> None:
    (r, *_) = await given.feed.ranges()
    await given.append(numbered(30))
    end = await given.feed.start(r, "now")
    far = Position(re.sub(r"\d+(?=\D*$)", str(number), end))
    with suppress(RangeRefused):
        await given.feed.read(r, far, 10)
    await given.feed.lags({r: far})


async def test_many_tasks_read_at_once_while_changes_arrive(given: FeedHarness) -> None:
    await given.append(numbered(500))
    ranges = await given.feed.ranges()

    async def follow(found: FeedRange, until: int) -> list[Change]:
        changes: list[Change] = []
        after = await given.feed.start(found, "beginning")
        while len(changes) < until:
            page = await given.feed.read(found, after, 17)
            changes += page.changes
            after = page.position
        return changes

    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            early = [group.create_task(follow(x, 1)) for x in [*ranges] * 8]
            group.create_task(given.append(numbered(500, 500)))
        assert all(x.result() for x in early)
        counts = {x: len(await whole(given.feed, x)) for x in ranges}
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(follow(x, counts[x])) for x in [*ranges] * 8]
    for copy in range(8):
        mine = [x for r in readers[copy * RANGES : (copy + 1) * RANGES] for x in r.result()]
        assert {x.key for x in mine} == {x.key for x in numbered(1000)}
        assert len(mine) == 1000


@pytest.mark.parametrize(
    "key",
    ["", " ", "é", "e\u0301", "日本語", "🦆" * 100, "a/b?c#d", "\x00\n", "k" * 10_000],
    ids=[
        "empty",
        "blank",
        "composed",
        "combining",
        "cjk",
        "astral",
        "signs",
        "control",
        "long",
    ],
)
async def test_any_text_can_be_a_key_and_an_id(given: FeedHarness, key: str) -> None:
    if len(key) > 2000:
        needs(given, FeedAbility.LARGE)
    await given.append([Record(key=key, id=key + "!", body='"ü"'.encode())])
    (change,) = [x for r in await given.feed.ranges() for x in await whole(given.feed, r)]
    assert (change.key, change.id, change.value()) == (key, key + "!", "ü")


async def test_deletes_and_images_before_the_change_are_carried(given: FeedHarness) -> None:
    needs(given, FeedAbility.RECORDS_AS_GIVEN)
    await given.append(
        [
            Record(key="a", body=b"1"),
            Record(key="a", body=b"2", operation=Operation.REPLACE, previous=b"1"),
            Record(key="a", operation=Operation.DELETE, previous=b"2"),
            Record(key="a", operation=Operation.DELETE, previous=b""),
        ]
    )
    changes = await whole(given.feed, await busiest(given.feed))
    assert [(x.operation, x.value(), x.previous) for x in changes] == [
        (Operation.INSERT, 1, None),
        (Operation.REPLACE, 2, b"1"),
        (Operation.DELETE, None, b"2"),
        (Operation.DELETE, None, b""),
    ]


async def test_changes_and_children_survive_the_trip_between_processes(
    given: FeedHarness,
) -> None:
    await given.append(numbered(30))
    found = await busiest(given.feed)
    changes = await whole(given.feed, found)
    assert pickle.loads(pickle.dumps(changes)) == changes
    await given.split(found.id)
    with pytest.raises(RangeEnded) as caught:
        await pages_from(given.feed, found, given.feed.position_after(changes[-1]), 10)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.children, str(again)) == (caught.value.children, str(caught.value))
