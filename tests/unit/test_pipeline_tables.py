"""Commits and merges of tables, without a Spark session."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.errors import PipelineRefused
from pipeline.settings import load_settings
from pipeline.tables.appending import (
    DeltaAppender,
    Written,
    append_once,
    ensure_table,
)
from pipeline.tables.merging import merge

pytestmark = pytest.mark.real_time

SCHEMA = pa.schema([("key", pa.string()), ("sequence", pa.int64())])


def appender(uri: Path) -> DeltaAppender:
    return DeltaAppender(str(uri), SCHEMA, checkpoint=None, app_id="query")


def batch(*sequences: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": "k", "sequence": n} for n in sequences], SCHEMA)


def rows(uri: Path) -> list[int]:
    table = pa.table(DeltaTable(str(uri)).to_pyarrow_table())
    return sorted(table.column("sequence").to_pylist())


def test_a_batch_that_is_repeated_is_not_added_again(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    for number, sequences in ((0, (1, 2)), (1, (3,)), (1, (3,)), (0, (1, 2)), (2, (4,))):
        one = appender(tmp_path)
        told = one.write(iter([batch(*sequences)]))
        one.commit([told], number)
    assert rows(tmp_path) == [1, 2, 3, 4]


def test_another_query_counts_its_own_batches(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    one = appender(tmp_path)
    for query in ("one", "two"):
        told = one.write(iter([batch(1)]))
        assert isinstance(told, Written)
        append_once(str(tmp_path), told.files, app_id=query, batch=0)
    assert rows(tmp_path) == [1, 1]


def test_all_tasks_of_a_batch_are_one_commit_and_an_empty_batch_is_none(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    one = appender(tmp_path)
    told = [one.write(iter(x)) for x in ([batch(1)], [], [batch(2), batch(3)])]
    one.commit([*told, None], 0)
    one.commit([one.write(iter([]))], 1)
    assert DeltaTable(str(tmp_path)).version() == 1
    assert rows(tmp_path) == [1, 2, 3]


def test_what_a_failed_batch_wrote_is_removed(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    one = appender(tmp_path)
    told = one.write(iter([batch(1)]))
    one.abort([told, None], 0)
    assert list(tmp_path.glob("*.parquet")) == []


def test_a_table_with_other_columns_is_refused_with_advice(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    with pytest.raises(PipelineRefused, match="Give it a new directory"):
        ensure_table(str(tmp_path), pa.schema([("key", pa.string())]))


def test_a_merge_replaces_only_what_is_older_and_again_changes_nothing(tmp_path: Path) -> None:
    def merged(*pairs: tuple[str | None, int]) -> None:
        found = [{"key": key, "sequence": n} for key, n in pairs]
        table = pa.Table.from_pylist(found, SCHEMA)
        merge(str(tmp_path), table, keys=["key"], newer="s.sequence > t.sequence")

    merged(("a", 5), ("b", 5), (None, 5))
    for _ in range(2):
        merged(("a", 4), ("b", 6), (None, 7), ("c", 1))
    table = pa.table(DeltaTable(str(tmp_path)).to_pyarrow_table())
    found = [(x["key"], x["sequence"]) for x in table.to_pylist()]
    assert sorted(found, key=str) == [("a", 5), ("b", 6), ("c", 1), (None, 7)]


def test_a_merge_of_many_rows_is_not_every_row_with_every_other(tmp_path: Path) -> None:
    many = pa.table([[f"k{n}" for n in range(50_000)], range(50_000)], schema=SCHEMA)
    merge(str(tmp_path), many, keys=["key"])
    began = time.process_time()
    merge(str(tmp_path), many, keys=["key"])
    assert time.process_time() - began < 2  # 0.05 s by a hash, 4 s pair by pair


def test_wrong_settings_are_each_named(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'feed = "eventlog:log"\ndirectory = "tables"\nmax_change = 5\n[latest]\ninterval = -1\n'
    )
    with pytest.raises(PipelineRefused, match=r"(?s)max_change: .*latest.interval: |latest"):
        load_settings(file, {})
    with pytest.raises(PipelineRefused, match="directory: Field required"):
        load_settings(None, {"feed": "eventlog:log"})
    aggregate = {"name": "latest", "window": "1 hour"}
    with pytest.raises(PipelineRefused, match="two tables have one name"):
        load_settings(None, {"feed": "f", "directory": "d", "aggregates": [aggregate]})
