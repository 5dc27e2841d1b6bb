"""Tables that start far behind: up to where they are filled, and what is read after that."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.backlog import FillReader, waiting
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import Options, slices_from_text
from changefeed.pipeline.source.planning import first_offset
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.spark import SlicePartition, StreamReader
from tests.support.pipeline_feeds import a_log, append_records, append_to, names
from tests.support.succession import replace_partitions

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("all_in_parquet")]

WHOLE = RangeId("e1.p01.v00-ff")
HALVES = [(0, 0, 127), (0, 128, 255)]


def log_of_two_eras(path: Path) -> str:
    """Make a log with two eras, of which 40 and 20 changes are sealed, and 5 are not."""
    address = a_log(path, {f"k{n}": 3 for n in range(10)}, parts=1)
    append_records(path, [], seal=True)
    append_to(path, {f"k{n}": 1 for n in range(10)})
    asyncio.run(replace_partitions(path, [WHOLE], HALVES))
    append_to(path, {f"k{n}": 2 for n in range(10)})
    append_records(path, [], seal=True)
    append_to(path, {f"k{n}": 1 for n in range(5)})
    return address


class Query:
    """What Spark does with a source, without Spark: it keeps what it has planned."""

    def __init__(self, address: str) -> None:
        self.address = address
        with closing(open_access(address)) as access:
            self.done = first_offset(access, "beginning")
        self.logged: Offset | None = None
        self.read: list[tuple[RangeId, int]] = []
        self.filled = 0

    def run(self, kind: type[StreamReader], *, limit: int, batches: int = 1000) -> int:
        """Repeat the batch that was logged, then read on; return how many batches it took."""
        with self._reader(kind) as reader:
            for n in range(batches):
                if not self._logs(reader, limit):
                    return n
                self._read(reader)
        return batches

    def plan(self, kind: type[StreamReader], *, limit: int) -> None:
        """Log the end of a batch, and die before it is read."""
        with self._reader(kind) as reader:
            self._logs(reader, limit)

    @contextmanager
    def _reader(self, kind: type[StreamReader]) -> Iterator[StreamReader]:
        reader = kind(Options.of({"feed": self.address, "pollInterval": "0"}))
        reader.prepareForTriggerAvailableNow()
        try:
            yield reader
        finally:
            reader.stop()

    def _logs(self, reader: StreamReader, limit: int) -> bool:
        """Log the end of a batch, unless there is one; tell if there is anything to read."""
        begin = self.done.as_json()
        if self.logged is None:
            end = Offset.of(reader.latestOffset(begin, ReadMaxRows(limit)))
            self.logged = None if end.as_json() == begin else end
        return self.logged is not None

    def _read(self, reader: StreamReader) -> None:
        assert self.logged is not None
        slices = self._slices(reader, self.logged)
        with closing(open_access(self.address)) as access:
            found = [x for slice_ in slices for x in names(access, slice_)]
        self.read += found
        self.filled += len(found) if isinstance(reader, FillReader) else 0
        self.done, self.logged = self.logged, None

    def _slices(self, reader: StreamReader, end: Offset) -> Sequence[Slice]:
        slices: list[Slice] = []
        for x in reader.partitions(self.done.as_json(), end.as_json()):
            assert isinstance(x, SlicePartition)
            if not isinstance(reader, FillReader):
                slices += x.slices
                continue
            for batch in reader.read(x):
                assert isinstance(batch, pa.RecordBatch)
                slices += [
                    y for row in batch.to_pylist() for y in slices_from_text(row["slice"])
                ]
        return slices


def test_what_waits_for_a_fill_is_counted_from_where_the_table_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    address = log_of_two_eras(path)
    begin = {"startingAt": "beginning"}
    assert waiting(address, None, begin) == 60
    assert waiting(address, None, {"startingAt": "now"}) == 0
    query = Query(address)
    query.run(StreamReader, limit=10, batches=2)
    assert waiting(address, query.done, begin) == 40
    query.run(StreamReader, limit=1000)
    assert waiting(address, query.done, begin) == 0
    append_records(path, [], seal=True)  # what the table has is sealed now, and nothing waits
    assert waiting(address, query.done, begin) == 0


def test_logs_without_segments_or_of_which_spark_can_scan_nothing_are_not_filled(
    tmp_path: Path,
) -> None:
    begin = {"startingAt": "beginning"}
    assert waiting(a_log(tmp_path / "log", {"a": 10}), None, begin) == 0
    append_records(tmp_path / "log", [], seal=True)
    assert waiting(f"eventlog:{tmp_path / 'log'}", None, begin) == 10
    odd = (tmp_path / "log").rename(tmp_path / "log[1]")
    assert waiting(f"eventlog:{odd}", None, begin) == 0


@pytest.mark.parametrize("seed", range(6))
def test_fills_and_streams_that_die_and_take_turns_have_each_change_once(
    tmp_path: Path, seed: int
) -> None:
    chance, path = Random(seed), tmp_path / "log"
    query = Query(a_log(path, {"k0": 5}, parts=2))
    written = 5
    for _ in range(8):
        keys = {f"k{chance.randrange(20)}": 1 + chance.randrange(9) for _ in range(4)}
        append_to(path, keys)
        written += sum(keys.values())
        if chance.random() < 0.5:
            append_records(path, [], seal=True)
        if chance.random() < 0.3:
            renewed(path, [(0, 0, 255), (1, 0, 255)])
        kinds: list[type[StreamReader]] = [FillReader, StreamReader]
        if chance.random() < 0.5:
            query.plan(chance.choice(kinds), limit=chance.randint(1, 30))
            append_records(path, [], seal=True)
        query.run(
            chance.choice(kinds), limit=chance.randint(1, 30), batches=chance.randint(0, 4)
        )
    query.run(FillReader, limit=1000)
    query.run(StreamReader, limit=1000)
    assert len(query.read) == len(set(query.read)) == written


def renewed(path: Path, ranges: Sequence[tuple[int, int, int]]) -> None:
    """Begin an era with the same ranges."""
    with closing(open_access(f"eventlog:{path}")) as access:
        listed = access.ranges()
    parents = {y for x in listed for y in x.parents}
    asyncio.run(replace_partitions(path, [x.id for x in listed if x.id not in parents], ranges))
