"""What ``changefeed log status`` shows, and how it asks."""

import io
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock

import msgspec
import pytest
from rich.console import Console

from changefeed.cli.collection_status import LogStatus, inspector_of, log_status, rendered
from changefeed.cli.collections import _compact_at
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import CoreStatus
from changefeed.log.catalog.ranges import EraShape
from changefeed.log.client.client import BrokerClient
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.protocol.messages import BrokerInfo, Topology
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import (
    ActiveProducer,
    Compaction,
    PartitionBounds,
    RangeStorage,
    Storage,
)
from changefeed.log.records import Record

OLD, NEW = RangeId("e1.p01.v00-ff"), RangeId("e2.p01.v00-ff")


TOPOLOGY = Topology(
    cluster="c" * 32,
    collection="orders",
    identity="f" * 32,
    parts=1,
    catalog=7,
    era=2,
    ending=False,
    eras=(
        EraShape(era=1, brokers=("broker-1",)),
        EraShape(era=2, brokers=("broker-2",)),
    ),
    brokers=(
        BrokerInfo(name="broker-1", incarnation="i", address="one:7070"),
        BrokerInfo(name="broker-2", incarnation="i", address="two:7070"),
    ),
)
STORAGE = Storage(
    ranges=(
        RangeStorage(range=OLD, start=10, last=50, bytes=4_000),
        RangeStorage(range=NEW, bytes=300),
    ),
    producers=(
        ActiveProducer(id="p", seen_us=0),
        ActiveProducer(id="q", seen_us=0),
    ),
    segments=2,
    segment_bytes=1_500,
    flushes=3,
    flush_bytes=9_000,
)
SAYS = CoreStatus(
    name="broker-2",
    incarnation="i",
    catalog=7,
    era=2,
    writing=True,
    master=True,
    leaving=False,
    living=("broker-1", "broker-2"),
    unheard=(),
    durable=3,
    producers=2,
    buffered=1_200,
    cached=5_000_000,
    cache_hits=0,
    cache_misses=0,
    compaction=Compaction(broker="broker-2"),
    objects_deleted=0,
)
ENDS = {OLD: PartitionBounds(start=10, last=50), NEW: PartitionBounds(start=0, last=3)}


def found(storage: Storage | None = STORAGE) -> LogStatus:
    seen = log_status(Routes(TOPOLOGY, "http"), ENDS, {"broker-2": SAYS}, storage)
    return msgspec.structs.replace(seen, at=datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC))


def text_of(status: LogStatus, *, all_: bool = False) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(rendered(status, all_=all_))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row(text: str, name: str) -> list[str]:
    """Return the cells of the row that begins with a name."""
    rows = [[y.strip() for y in x.split("│")[1:-1]] for x in text.splitlines()]
    (found,) = (x for x in rows if x[:1] == [name])
    return found


def test_what_is_stored_is_shown_in_sum_and_by_range() -> None:
    text = text_of(found(), all_=True)
    assert "era 2, 1 parts, 43 records, 1970" in text
    assert "4.3 kB of records; in segments: 2 with 1.5 kB" in text
    assert "collections share: 3 with 9.0 kB" in text
    assert row(text, NEW) == [NEW, "open", *["broker-2"] * 2, "1", "3", "300 bytes"]
    home = ["broker-1", "broker-2"]
    assert row(text, OLD) == [OLD, "ended", *home, "11", "50", "4.0 kB"]
    assert "producers in this era: 2, the last request 9 s ago" in text


def test_each_broker_is_shown_with_what_it_does_and_one_that_does_not_answer() -> None:
    text = text_of(found())
    assert row(text, "broker-1") == [
        *("broker-1", "one:7070", "does not answer", "0", "0", "", "")
    ]
    assert row(text, "broker-2") == [
        *("broker-2", "two:7070", "writing, master", "1", "1", "1.2 kB", "5.0 MB")
    ]


def test_ended_ranges_are_counted_and_shown_if_asked_for() -> None:
    status = found()
    assert OLD not in text_of(status)
    assert "ranges that have ended: 1 (--all shows them)" in text_of(status)
    assert OLD in text_of(status, all_=True)


def test_where_what_is_stored_is_not_known_the_rest_is_shown() -> None:
    text = text_of(found(storage=None))
    assert "43 records" in text
    assert "no broker could say how much is stored" in text
    assert "0 bytes" not in text
    assert "producer" not in text.rpartition("┘")[2]


@pytest.mark.real_time  # the log has threads
async def test_a_log_in_a_directory_is_shown_without_brokers(tmp_path: Path) -> None:
    home = tmp_path / "log"
    await create_log(home, 1)
    async with EventLogWriter.open(home) as writer:
        await writer.send_many([Record(key="a", body=b"1"), Record(key="b", body=b"2")])
        await writer.begin_era()
        await writer.send_many([Record(key="c", body=b"3")])
        async with inspector_of(str(home)) as inspector:  # while it is written
            status = await inspector.look()
    text = text_of(status, all_=True)
    assert "event log: era 2, 1 parts, 3 records" in text
    assert row(text, OLD)[:6] == [OLD, "ended", "local", "local", "1", "2"]
    assert row(text, NEW)[:6] == [NEW, "open", "local", "local", "1", "1"]
    assert "does not answer" not in text
    assert "producer" not in text


async def test_what_a_broker_compacts_in_several_answers_is_added_up() -> None:
    answers = [
        Compaction(broker="b", ended=False, objects=100, bytes=7),
        Compaction(broker="b", ended=False, objects=20, failed=2),
        Compaction(broker="b", objects=3, failed=1),
    ]
    client = AsyncMock(spec=BrokerClient)
    client.compact.side_effect = answers
    made = await _compact_at(client, "http://b:7070")
    assert made == Compaction(broker="b", objects=123, bytes=7, failed=3)
