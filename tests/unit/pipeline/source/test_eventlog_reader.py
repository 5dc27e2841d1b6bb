"""The event log read in bulk, planned and cut for tasks; without Spark."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, create_log
from changefeed.feeds.eventlog.bulk import BulkLog, BulkReader, Columns
from changefeed.feeds.feed import Change, Feed, FeedRange, Operation, RangeId
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.eventlog_reader import LogAccess
from changefeed.pipeline.source.planning import first_offset, next_offset
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from tests.support.pipeline_feeds import a_log, drained

pytestmark = pytest.mark.real_time

WHOLE = RangeId("e1.p00.v00-ff")


async def every_change(feed: Feed) -> list[Change]:
    found: list[Change] = []
    after = await feed.start(FeedRange(id=WHOLE), "beginning")
    while (page := await feed.read(FeedRange(id=WHOLE), after, 1000)).changes:
        found += page.changes
        after = page.position
    return found


def read_whole(path: Path, after: int, end: int, *, batch: int = 8192) -> list[Columns]:
    with closing(BulkReader(BulkLog.at(path))) as reader:
        return list(reader.read(WHOLE, after, end, batch=batch))


async def test_columns_say_what_changes_say(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await create_log(path, parts=1)
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as feed:
        for n in range(7):
            await writer.append(
                [
                    Record(
                        key=f"k{m}",
                        id=f"id{m}" if m % 2 else None,
                        body=b'{"m":%d}' % m if m % 3 else b"",
                        operation=list(Operation)[m % 3],
                        previous=b"{}" if m % 5 == 0 else None,
                        committed_us=m,
                    )
                    for m in range(n * 100)
                ]
            )
        changes = await every_change(feed)
    envelope = Envelope(columns=EVERYTHING)
    for after, end in ((0, len(changes)), (1, 2), (255, 257), (300, 1999), (500, 500)):
        wanted = changes[after:end]
        found = read_whole(path, after, end, batch=300)
        assert [x for c in found for x in range(c.first, c.first + len(c))] == [
            x.sequence for x in wanted
        ]
        rows = [x for c in found for x in envelope.batch(WHOLE, c, 3).to_pylist()]
        assert rows == envelope.batch(WHOLE, wanted, 3).to_pylist()


def test_a_batch_of_columns_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    asyncio.run(create_log(path, parts=1))

    async def write() -> None:
        async with EventLogWriter.open(path, synchronous="off") as writer:
            for _ in range(6):
                await writer.append([Record(key="k", body=b"x" * (1 << 20))] * 15)

    asyncio.run(write())
    sizes = [len(x) for x in read_whole(path, 0, 90)]
    assert sizes == [65, 25]  # the first record, and 64 MiB more


def test_changes_that_are_not_there_are_refused_not_left_out(tmp_path: Path) -> None:
    a_log(tmp_path / "log", {"a": 10}, parts=1)
    with pytest.raises(FeedRefused, match="changes up to 10 only, 11 was wanted"):
        read_whole(tmp_path / "log", 5, 11)
    shutil.rmtree(tmp_path / "log")
    address = a_log(tmp_path / "log", {"a": 3}, parts=1)
    access = open_access(address)
    start = next_offset(access, first_offset(access, "beginning"))
    shutil.rmtree(tmp_path / "log")
    a_log(tmp_path / "log", {"a": 3}, parts=1)
    with pytest.raises(FeedRefused, match="deleted and recreated while it was read"):
        next_offset(access, start)
    with pytest.raises(FeedRefused, match="of another log"):
        next_offset(open_access(address), start)


def test_a_time_is_before_the_first_change_committed_at_or_after_it(tmp_path: Path) -> None:
    a_log(tmp_path / "log", {"a": 1000}, parts=1)  # change n was committed n - 1 s after 1970
    log = BulkLog.at(tmp_path / "log")
    assert [log.sequence_before(WHOLE, n * 1_000_000) for n in (0, 1, 700, 999)] == [
        *(0, 1, 700, 999)
    ]
    assert log.sequence_before(WHOLE, 10**12) == 1000


def test_between_the_two_writes_of_a_succession_a_range_has_not_ended(tmp_path: Path) -> None:
    access = open_access(a_log(tmp_path / "log", {"a": 10}, parts=1))
    start, _ = drained(access, first_offset(access, "beginning"))
    records = sqlite3.connect(tmp_path / "log/brokers/1/records.db")
    records.execute("UPDATE partitions SET closed = 1")
    records.commit()
    records.close()
    assert next_offset(access, start) == start


def test_an_address_that_leads_to_no_log_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(FeedRefused, match="changefeed produce"):
        open_access(f"eventlog:{tmp_path / 'none'}")
    for address in ("memory:", "eventlog:", "orders"):
        with pytest.raises(FeedRefused):
            open_access(address)
    assert isinstance(open_access(a_log(tmp_path / "log", {})), LogAccess)
