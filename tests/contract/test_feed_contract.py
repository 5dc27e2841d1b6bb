"""What every feed promises. A new feed is a harness, and one more line in FEEDS."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import (
    FeedRefused,
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, create_log
from changefeed.feeds.feed import (
    Change,
    Continuation,
    Feed,
    FeedRange,
    Operation,
    RangeEnded,
    RangeId,
    StartAt,
    Successor,
)
from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.timeouts import bounded_feed
from tests.support.cosmos_feeds import in_cosmos
from tests.support.succession import replace_partitions
from tests.support.thirdparty import importable, site_with_shelf

pytestmark = pytest.mark.real_time  # no test waits for time; some feeds have threads

RANGES = 3
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YEAR_US = 1_767_225_600_000_000

# What is not in every feed's power, and skipped where it is not.
RECORDS_AS_GIVEN = "operations, images and commit times are the producer's"
LARGE = "a change may have any size"
ENDED_ARE_READ = "a range that has ended can still be read"


class Harness(Protocol):
    """A fresh feed with ``RANGES`` empty ranges, and the hand that changes it."""

    @property
    def feed(self) -> Feed: ...

    @property
    def can(self) -> frozenset[str]: ...

    async def append(self, records: Sequence[Record]) -> None: ...

    async def split(self, range_id: RangeId) -> None: ...

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        """Merge what ``split`` has made of one range."""
        ...


class InMemory:
    can = frozenset({RECORDS_AS_GIVEN, LARGE, ENDED_ARE_READ})

    def __init__(self) -> None:
        self.feed = MemoryFeed(RANGES, clock=NEW_YEAR.timestamp)

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self.feed.append(
                x.key,
                x.body,
                id=x.id,
                operation=x.operation,
                previous=x.previous,
                committed_us=x.committed_us,
            )

    async def split(self, range_id: RangeId) -> None:
        self.feed.split(range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        self.feed.merge(*range_ids)


class InEventLog:
    can = frozenset({RECORDS_AS_GIVEN, LARGE, ENDED_ARE_READ})

    def __init__(self, path: Path, feed: EventLog, writer: EventLogWriter) -> None:
        self.feed = feed
        self._path = path
        self._writer = writer

    async def append(self, records: Sequence[Record]) -> None:
        await self._writer.append(records)

    async def split(self, range_id: RangeId) -> None:
        part = int(range_id.split(".")[1][1:])
        await replace_partitions(self._path, [range_id], [(part, 0, 127), (part, 128, 255)])

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        part = int(range_ids[0].split(".")[1][1:])
        await replace_partitions(self._path, range_ids, [(part, 0, 255)])


@asynccontextmanager
async def in_memory(_path: Path) -> AsyncIterator[Harness]:
    yield InMemory()


@asynccontextmanager
async def in_event_log(path: Path) -> AsyncIterator[Harness]:
    await create_log(path, RANGES)
    async with (
        EventLogWriter.open(path, synchronous="off", clock=NEW_YEAR.timestamp) as writer,
        EventLog.open(path) as log,
    ):
        yield InEventLog(path, log, writer)


@asynccontextmanager
async def in_emulator(_path: Path) -> AsyncIterator[Harness]:
    async with in_cosmos(RANGES) as harness:
        yield harness


class InShelf:
    """A feed of another package; its journal is written as any producer would."""

    can = frozenset({RECORDS_AS_GIVEN, LARGE, ENDED_ARE_READ})

    def __init__(self, journal: Path, feed: Feed) -> None:
        self.feed = feed
        self._journal = journal

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self._write(
                append={
                    "key": x.key,
                    "body": x.body.decode(),
                    "id": x.id,
                    "operation": x.operation,
                    "previous": None if x.previous is None else x.previous.decode(),
                    "committed_us": x.committed_us or NEW_YEAR_US,
                }
            )

    async def split(self, range_id: RangeId) -> None:
        self._write(split=range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        self._write(merge=range_ids)

    def _write(self, **entry: Any) -> None:
        with self._journal.open("ab") as opened:
            opened.write(msgspec.json.encode(entry) + b"\n")


@asynccontextmanager
async def in_shelf(path: Path) -> AsyncIterator[Harness]:
    await asyncio.to_thread(path.write_text, f'{{"ranges": {RANGES}}}\n')
    with importable(site_with_shelf(path.with_name("site"))):
        async with open_feed(f"shelf:{path}") as feed:
            yield InShelf(path, feed)


FEEDS = [
    pytest.param(in_memory, id="memory"),
    pytest.param(in_event_log, id="event-log"),
    pytest.param(in_emulator, id="cosmos"),
    pytest.param(in_shelf, id="third-party"),
]


@pytest.fixture(params=FEEDS)
async def given(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    make: Callable[[Path], AbstractAsyncContextManager[Harness]] = request.param
    async with make(tmp_path / "feed") as harness:
        yield harness


def needs(given: Harness, trait: str) -> None:
    if trait not in given.can:
        pytest.skip(f"not this feed: {trait}")


def numbered(count: int, begin: int = 0) -> list[Record]:
    return [Record(key=f"key-{n}", body=b"%d" % n) for n in range(begin, begin + count)]


async def pages_from(
    feed: Feed, range_id: RangeId, after: Continuation, limit: int
) -> tuple[list[Change], Continuation]:
    """Read until there is nothing for now."""
    changes: list[Change] = []
    while (page := await feed.read(range_id, after, limit)).changes:
        assert len(page.changes) <= limit
        assert page.continuation == feed.continuation_after(page.changes[-1])
        assert not changes or page.changes[0].sequence > changes[-1].sequence
        changes += page.changes
        after = page.continuation
    return changes, page.continuation


async def whole(feed: Feed, range_id: RangeId, limit: int = 1000) -> list[Change]:
    beginning = await feed.resolve_start(range_id, "beginning")
    changes, _ = await pages_from(feed, range_id, beginning, limit)
    return changes


async def busiest(feed: Feed) -> RangeId:
    """Return the range with most changes."""
    counts = {x.id: len(await whole(feed, x.id)) for x in await feed.ranges()}
    return max(counts, key=lambda x: counts[x])


async def ended(feed: Feed, range_id: RangeId, after: Continuation) -> tuple[Successor, ...]:
    """Read a range to its end, which must have successors."""
    with pytest.raises(RangeEnded) as caught:
        await pages_from(feed, range_id, after, 1000)
    assert caught.value.range_id == range_id
    return caught.value.successors


async def to_its_end(
    feed: Feed, range_id: RangeId, after: Continuation
) -> tuple[list[Change], tuple[Successor, ...]]:
    """Read what an ended range still gives, and what goes on with its keys."""
    changes: list[Change] = []
    while True:
        try:
            page = await feed.read(range_id, after, 7)
        except RangeEnded as ended:
            return changes, ended.successors
        assert page.changes
        changes += page.changes
        after = page.continuation


async def test_every_change_is_in_one_range_and_comes_back_as_it_went_in(
    given: Harness,
) -> None:
    await given.append(numbered(300))
    found = [x for r in await given.feed.ranges() for x in await whole(given.feed, r.id)]
    assert {x.key: x.body for x in found} == {x.key: x.body for x in numbered(300)}
    assert len(found) == 300
    assert {(x.id == x.key, x.previous) for x in found} == {(True, None)}
    if RECORDS_AS_GIVEN in given.can:
        assert {x.operation for x in found} == {Operation.INSERT}
        assert {x.committed_us for x in found} == {NEW_YEAR_US}


async def test_a_feed_has_one_identity_for_all_its_readers_and_no_other_feed_has_it(
    given: Harness, tmp_path: Path
) -> None:
    assert given.feed.identity
    assert bounded_feed(given.feed, timeout=1.0).identity == given.feed.identity
    for make in (in_memory, in_event_log):
        async with make(tmp_path / "other") as other:
            assert other.feed.identity != given.feed.identity


@pytest.mark.parametrize("limit", [1, 7, 256, 1000])
async def test_pages_of_any_size_give_the_same_changes_in_the_same_order(
    given: Harness, limit: int
) -> None:
    for begin in range(0, 900, 300):
        await given.append(numbered(300, begin))
    for r in await given.feed.ranges():
        changes = await whole(given.feed, r.id, limit)
        assert changes == await whole(given.feed, r.id)
        assert [x.sequence for x in changes] == sorted({x.sequence for x in changes})
        assert [int(x.body) for x in changes] == sorted(int(x.body) for x in changes)
        assert {x.range_id for x in changes} == {r.id}


async def test_reading_goes_on_after_any_change_with_the_next_one(given: Harness) -> None:
    await given.append(numbered(200))
    range_id = await busiest(given.feed)
    changes = await whole(given.feed, range_id)
    for n, change in enumerate(changes):
        after = given.feed.continuation_after(change)
        page = await given.feed.read(range_id, after, 3)
        assert list(page.changes) == changes[n + 1 : n + 4]
        assert await given.feed.lag(range_id, after) == len(changes) - n - 1


async def test_the_same_position_gives_the_same_changes_again(given: Harness) -> None:
    await given.append(numbered(50))
    range_id = await busiest(given.feed)
    beginning = await given.feed.resolve_start(range_id, "beginning")
    first = await given.feed.read(range_id, beginning, 5)
    await given.append(numbered(50, 50))
    assert await given.feed.read(range_id, beginning, 5) == first


async def test_a_change_larger_than_a_page_should_be_comes_alone_and_whole(
    given: Harness,
) -> None:
    needs(given, LARGE)
    large = b'"' + b"x" * 9_000_000 + b'"'
    await given.append([Record(key="a", body=body) for body in (b"1", large, large, b"2")])
    (range_id,) = [x.id for x in await given.feed.ranges() if await whole(given.feed, x.id)]
    assert [x.body for x in await whole(given.feed, range_id)] == [b"1", large, large, b"2"]


async def test_the_position_of_an_empty_page_finds_what_comes_later(given: Harness) -> None:
    empty: dict[RangeId, Continuation] = {}
    for r in await given.feed.ranges():
        page = await given.feed.read(
            r.id, await given.feed.resolve_start(r.id, "beginning"), 10
        )
        assert not page.changes
        empty[r.id] = page.continuation
    await given.append(numbered(60))
    for range_id, after in empty.items():
        later, end = await pages_from(given.feed, range_id, after, 10)
        assert later
        assert later == await whole(given.feed, range_id)
        assert not (await given.feed.read(range_id, end, 10)).changes


async def test_now_is_settled_once_and_stays_where_it_was(given: Harness) -> None:
    await given.append(numbered(60))
    ranges = await given.feed.ranges()
    settled = {x.id: await given.feed.resolve_start(x.id, "now") for x in ranges}
    await given.append(numbered(60, 60))
    for range_id, now in settled.items():
        changes, _ = await pages_from(given.feed, range_id, now, 1000)
        assert changes
        assert changes == [x for x in await whole(given.feed, range_id) if int(x.body) >= 60]


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
    given: Harness, start: StartAt, seconds: list[int]
) -> None:
    needs(given, RECORDS_AS_GIVEN)
    for n in (10, 30, 5, 20, 40):
        await given.append([at(n)])
    range_id = await busiest(given.feed)
    settled = await given.feed.resolve_start(range_id, start)
    await given.append([at(n) for n in (1, 50)])
    changes, _ = await pages_from(given.feed, range_id, settled, 10)
    assert changes == (await whole(given.feed, range_id))[-len(seconds) - 2 :]


async def test_a_time_among_many_changes_is_found_exactly(given: Harness) -> None:
    needs(given, RECORDS_AS_GIVEN)
    await given.append([at(n * 7919 % 2000) for n in range(2000)])
    range_id = await busiest(given.feed)
    changes = await whole(given.feed, range_id)
    for n in range(0, 2000, 50):
        time = NEW_YEAR + timedelta(seconds=n)
        after = await given.feed.resolve_start(range_id, time)
        (first,) = (await given.feed.read(range_id, after, 1)).changes
        assert first == next(x for x in changes if x.committed_at >= time)


async def test_a_time_without_a_zone_is_refused(given: Harness) -> None:
    (r, *_) = await given.feed.ranges()
    with pytest.raises(FeedRefused, match=r"time zone.*\+00:00"):
        await given.feed.resolve_start(r.id, NEW_YEAR.replace(tzinfo=None))


async def test_lag_counts_exactly_what_lies_after_a_position(given: Harness) -> None:
    ranges = [x.id for x in await given.feed.ranges()]
    starts = {x: await given.feed.resolve_start(x, "beginning") for x in ranges}
    assert [await given.feed.lag(x, starts[x]) for x in ranges] == [0] * RANGES
    await given.append(numbered(500))
    lags = [await given.feed.lag(x, starts[x]) for x in ranges]
    assert lags == [len(await whole(given.feed, x)) for x in ranges]
    assert sum(lags) == 500
    assert [
        await given.feed.lag(x, await given.feed.resolve_start(x, "now")) for x in ranges
    ] == [0] * RANGES


async def test_an_unknown_range_is_unknown_to_every_method(given: Harness) -> None:
    (r, *_) = await given.feed.ranges()
    start = await given.feed.resolve_start(r.id, "beginning")
    nowhere = RangeId("nowhere")
    with pytest.raises(RangeUnknown, match="nowhere"):
        await given.feed.read(nowhere, start, 10)
    with pytest.raises(RangeUnknown):
        await given.feed.resolve_start(nowhere, "now")
    with pytest.raises(RangeUnknown):
        await given.feed.lag(nowhere, start)


async def test_what_is_no_position_of_a_range_is_refused_for_this_range_only(
    given: Harness,
) -> None:
    (r, *_) = await given.feed.ranges()
    await given.append(numbered(30))
    end = await given.feed.resolve_start(r.id, "now")
    beyond = Continuation(end + "0")
    for wrong in ("", "-1", "gibberish", "1/2/3", "Ω/1", "/5", "²", beyond):
        with pytest.raises(RangeRefused) as refused:
            await given.feed.read(r.id, Continuation(wrong), 10)
        assert refused.value.range_id == r.id
        with pytest.raises(RangeRefused):
            await given.feed.lag(r.id, Continuation(wrong))


async def test_a_split_range_is_read_to_its_end_and_goes_on_in_its_children(
    given: Harness,
) -> None:
    needs(given, ENDED_ARE_READ)
    await given.append(numbered(100))
    parent = await busiest(given.feed)
    before = await whole(given.feed, parent)
    await given.split(parent)
    await given.append(numbered(100, 100))

    beginning = await given.feed.resolve_start(parent, "beginning")
    page = await given.feed.read(parent, beginning, 1000)
    assert page.changes == before  # its own changes first, then the news of its end
    successors = await ended(given.feed, parent, page.continuation)
    assert await given.feed.lag(parent, page.continuation) == 0
    assert [x.range.parents for x in successors] == [(parent,), (parent,)]
    after = []
    for x in successors:
        changes, _ = await pages_from(given.feed, x.range.id, x.start, 1000)
        assert changes == await whole(given.feed, x.range.id)
        assert changes
        after += changes
    others = [
        x
        for r in await given.feed.ranges()
        if r.id != parent and not r.parents
        for x in await whole(given.feed, r.id)
    ]
    assert {x.key for x in [*before, *after, *others]} == {x.key for x in numbered(200)}
    assert len(before) + len(after) + len(others) == 200


async def test_all_that_was_not_read_before_a_split_is_read_once_after_it(
    given: Harness,
) -> None:
    await given.append(numbered(100))
    parent = await busiest(given.feed)
    beginning = await given.feed.resolve_start(parent, "beginning")
    page = await given.feed.read(parent, beginning, 5)
    owned = {x.key for x in await whole(given.feed, parent)}
    await given.split(parent)
    await given.append(numbered(100))
    rest, successors = await to_its_end(given.feed, parent, page.continuation)
    assert [x.range.parents for x in successors] == [(parent,), (parent,)]
    after = []
    for x in successors:
        assert x.range in await given.feed.ranges()
        after += (await pages_from(given.feed, x.range.id, x.start, 7))[0]
    keys = [x.key for x in [*page.changes, *rest, *after]]
    assert sorted(keys) == sorted([*owned, *owned])


async def test_a_range_that_ended_empty_still_names_its_successors(given: Harness) -> None:
    (r, *_) = await given.feed.ranges()
    start = await given.feed.resolve_start(r.id, "beginning")
    now = await given.feed.resolve_start(r.id, "now")
    await given.split(r.id)
    assert await ended(given.feed, r.id, start) == await ended(given.feed, r.id, now)


async def test_each_key_keeps_its_order_through_splits_and_merges(given: Harness) -> None:
    keys = [f"key-{n}" for n in range(40)]
    step = 0

    async def append_to_all() -> None:
        nonlocal step
        await given.append([Record(key=x, body=b"%d" % step) for x in keys])
        step += 1

    await append_to_all()
    parent = await busiest(given.feed)
    await given.split(parent)
    await append_to_all()
    await append_to_all()
    children = [x.id for x in await given.feed.ranges() if x.parents == (parent,)]
    await given.merge(children)
    await append_to_all()

    seen: dict[str, list[int]] = {}
    for r in await given.feed.ranges():  # parents come first
        beginning = await given.feed.resolve_start(r.id, "beginning")
        for change in (await given.feed.read(r.id, beginning, 1000)).changes:
            seen.setdefault(change.key, []).append(int(change.body))
    assert seen == {x: [0, 1, 2, 3] for x in keys}


async def test_parents_are_listed_before_their_children_and_bounds_are_passed_on(
    given: Harness,
) -> None:
    needs(given, ENDED_ARE_READ)
    first = await given.feed.ranges()
    assert len(first) == RANGES
    await given.split(first[1].id)
    children = [x for x in await given.feed.ranges() if x.parents]
    await given.merge([x.id for x in children])
    ranges = await given.feed.ranges()
    assert list(ranges[:RANGES]) == list(first)
    places = {x.id: n for n, x in enumerate(ranges)}
    assert all(places[p] < places[x.id] for x in ranges for p in x.parents)
    low, high = children
    assert (low.low, low.high, high.high) == (first[1].low, high.low, first[1].high)
    assert low.low < low.high < high.high
    assert ranges[-1] == FeedRange(
        id=ranges[-1].id, low=first[1].low, high=first[1].high, parents=(low.id, high.id)
    )


async def test_many_tasks_read_at_once_while_changes_arrive(given: Harness) -> None:
    await given.append(numbered(500))
    ranges = [x.id for x in await given.feed.ranges()]

    async def follow(range_id: RangeId, until: int) -> list[Change]:
        changes: list[Change] = []
        after = await given.feed.resolve_start(range_id, "beginning")
        while len(changes) < until:
            page = await given.feed.read(range_id, after, 17)
            changes += page.changes
            after = page.continuation
        return changes

    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            early = [group.create_task(follow(x, 1)) for x in ranges * 8]
            group.create_task(given.append(numbered(500, 500)))
        assert all(x.result() for x in early)
        counts = {x: len(await whole(given.feed, x)) for x in ranges}
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(follow(x, counts[x])) for x in ranges * 8]
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
async def test_any_text_can_be_a_key_and_an_id(given: Harness, key: str) -> None:
    if len(key) > 2000:
        needs(given, LARGE)
    await given.append([Record(key=key, id=key + "!", body='"ü"'.encode())])
    (change,) = [x for r in await given.feed.ranges() for x in await whole(given.feed, r.id)]
    assert (change.key, change.id, change.value()) == (key, key + "!", "ü")


async def test_deletes_and_images_before_the_change_are_carried(given: Harness) -> None:
    needs(given, RECORDS_AS_GIVEN)
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


async def test_changes_and_successors_survive_the_trip_between_processes(
    given: Harness,
) -> None:
    await given.append(numbered(30))
    range_id = await busiest(given.feed)
    changes = await whole(given.feed, range_id)
    assert pickle.loads(pickle.dumps(changes)) == changes
    await given.split(range_id)
    with pytest.raises(RangeEnded) as caught:
        await pages_from(given.feed, range_id, given.feed.continuation_after(changes[-1]), 10)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.successors, str(again)) == (caught.value.successors, str(caught.value))


@pytest.mark.parametrize(
    "error",
    [
        FeedUnavailable("busy", 2.5),
        FeedRefused("made anew"),
        RangeRefused(RangeId("r7"), "no position"),
        RangeDamaged(RangeId("r7"), "the log is damaged"),
        RangeUnknown(RangeId("r7")),
        RangeEnded(RangeId("r7"), ()),
    ],
    ids=lambda x: type(x).__name__,
)
def test_errors_survive_the_trip_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
