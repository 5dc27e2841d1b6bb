"""The share of its account that a query takes: said to the source, kept by its tasks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path

import pytest

from changefeed.feeds.cosmos.spending import ClientOptions
from changefeed.feeds.feed import Position, RangeId
from changefeed.log.records import Record
from changefeed.pipeline.source import spark as module
from changefeed.pipeline.source.addresses import read_parts
from changefeed.pipeline.source.options import Options, slices_text
from changefeed.pipeline.source.planning import bundled
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.spark import BatchReader, SlicePartition, StreamReader
from changefeed.runtime.errors import UserError
from tests.support.pipeline_feeds import a_log, append_records

pytestmark = pytest.mark.real_time

FEED = "cosmos://host/shop/orders"
SHARES = {"maxRUPerSecond": "3000", "priority": "low", "throughputBucket": "2"}


def shares_of(address: str) -> ClientOptions:
    return ClientOptions.of(read_parts(address)[1])


def slices(count: int) -> list[Slice]:
    at = Position('"7"')
    return [
        Slice(range_id=RangeId(str(n)), start=at, end=at, changes=11_000) for n in range(count)
    ]


def test_what_a_query_may_take_is_said_as_hosts_say_it_in_the_address() -> None:
    expected = ClientOptions(max_ru=3000, priority="Low", throughput_bucket=2)
    assert shares_of(Options.of({"feed": FEED, **SHARES}).feed) == expected
    address = f"{FEED}?priority=low&max_ru=3000"
    more = Options.of({"feed": address, "throughputBucket": "2", "mode": "all-versions"})
    assert shares_of(more.feed) == expected
    for option in SHARES:
        with pytest.raises(UserError, match=f"{option}.*'eventlog'"):
            Options.of({"feed": "eventlog:/log", option: "1"})
    with pytest.raises(UserError, match=r"priority='high'.*say it once"):
        Options.of({"feed": address, "priority": "high"})


@pytest.mark.parametrize(
    ("budget", "count"), [("400", 1), ("2000", 1), ("3000", 2), ("1e6", 9)]
)
def test_the_tasks_of_a_batch_share_its_budget_and_are_no_more_than_can_spend_it(
    budget: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    @contextmanager
    def noting(address: str, *_: object, **__: object) -> Iterator[Access]:
        opened.append(address)
        raise LookupError

    monkeypatch.setattr(module, "kept_access", lambda *_, **__: nullcontext(FakePlanner()))
    given = slices(9)
    one = BatchReader(
        Options.of({"feed": FEED, "maxRUPerSecond": budget, "slices": slices_text(given)})
    )
    tasks = one.partitions()
    assert len(tasks) == count
    monkeypatch.setattr(module, "kept_access", noting)
    for x in tasks:
        assert isinstance(x, SlicePartition)
        with pytest.raises(LookupError):
            next(one.read(x))
    assert sum(shares_of(x).max_ru or 0 for x in opened) == pytest.approx(float(budget))


def test_slices_are_bundled_by_how_much_they_are_and_each_is_in_one_task() -> None:
    given = [(x,) for x in slices(7)]
    found = bundled(given, 3)
    assert sorted(len(x) for x in found) == [2, 2, 3]
    assert sorted(chain.from_iterable(found), key=lambda x: x.range_id) == slices(7)
    assert bundled(given, 9) == given


def a_log_of(path: Path, sizes: Sequence[int]) -> str:
    """Make a log whose bodies have these sizes."""
    feed = a_log(path, {}, parts=2)
    records = [
        Record(key=f"k{n}", body=b'"%b"' % (b"x" * x), committed_us=n)
        for n, x in enumerate(sizes)
    ]
    append_records(path, records)
    return feed


def sizes_of_batches(feed: str, **options: str) -> list[int]:
    """Run a stream to its end, by the trigger AvailableNow; return what each batch has.

    Each is read twice, the second time by a reader that knows nothing.
    """
    wanted = Options.of({"feed": feed, "pollInterval": "0", **options})
    one, found = StreamReader(wanted), list[int]()
    one.prepareForTriggerAvailableNow()
    start = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    while (end := one.latestOffset(start, one.getDefaultReadLimit())) != start:
        read = [
            [y for x in reader.partitions(start, end) for y in reader.read(x)]
            for reader in (one, StreamReader(wanted))
        ]
        assert read[0] == read[1]
        found.append(sum(x.nbytes for x in read[0]))
        start = end
    one.stop()
    return found


def test_a_batch_has_no_more_bytes_than_it_may_where_what_follows_is_as_large(
    tmp_path: Path,
) -> None:
    feed = a_log_of(tmp_path / "log", [1_000] * 2_000)
    (total,) = sizes_of_batches(feed)
    found = sizes_of_batches(feed, maxBytesPerBatch="500000")
    assert sum(found) == pytest.approx(total, rel=0.01)
    assert max(found) < 501_000
    assert min(found[:-1]) > 490_000
    few = sizes_of_batches(feed, maxBytesPerBatch="500000", maxChangesPerBatch="100")
    assert len(few) == 20


def test_changes_that_grow_are_noticed_at_the_end_of_a_batch_and_the_largest_is_still_read(
    tmp_path: Path,
) -> None:
    feed = a_log_of(tmp_path / "log", [10] * 1_000 + [10_000] * 300)
    found = sizes_of_batches(feed, maxBytesPerBatch="300000")
    assert max(found) < 330_000
    assert len(found) < 30
    one_by_one = sizes_of_batches(
        a_log_of(tmp_path / "huge", [10_000] * 5), maxBytesPerBatch="1"
    )
    assert len(one_by_one) == 5


class FakePlanner:
    """Takes slices as they are."""

    @property
    def positions(self) -> "FakePlanner":
        return self

    def cut(self, slice_: Slice, _: int) -> list[Slice]:
        return [slice_]

    def close(self) -> None: ...
