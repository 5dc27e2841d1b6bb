"""Commits and merges of tables, without a Spark session."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.pipeline.tables import delta_table as delta
from changefeed.pipeline.tables.delta_sink import DeltaAppender, Written, append_once
from changefeed.pipeline.tables.delta_table import Upkeep, compact, ensure_table, refuse_another
from changefeed.pipeline.tables.latest import MERGE
from changefeed.pipeline.tables.merge import Merge, merge_here
from changefeed.runtime.errors import UserError
from tests.support.delta_rows import rows_of
from tests.support.logs import captured_logs

pytestmark = pytest.mark.real_time

SCHEMA = pa.schema([("key", pa.string()), ("sequence", pa.int64())])


def appender(uri: Path) -> DeltaAppender:
    return DeltaAppender(str(uri), SCHEMA, checkpoint=None, app_id="query")


def batch(*sequences: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": "k", "sequence": n} for n in sequences], SCHEMA)


def sequences(uri: Path) -> list[int]:
    return sorted(x["sequence"] for x in rows_of(uri))


def test_a_batch_that_is_repeated_is_not_added_again_but_those_of_another_query(
    tmp_path: Path,
) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    for number, added in ((0, (1, 2)), (1, (3,)), (1, (3,)), (0, (1, 2)), (2, (4,))):
        one = appender(tmp_path)
        one.commit([one.write(iter([batch(*added)]))], number)
    told = one.write(iter([batch(1)]))
    assert isinstance(told, Written)
    append_once(str(tmp_path), told.files, app_id="another", batch=0)
    assert sequences(tmp_path) == [1, 1, 2, 3, 4]


def test_all_tasks_of_a_batch_are_one_commit_and_an_empty_batch_is_none(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), SCHEMA)
    one = appender(tmp_path)
    told = [one.write(iter(x)) for x in ([batch(1)], [], [batch(2), batch(3)])]
    one.commit([*told, None], 0)
    one.abort([*told, None], 0)  # nevertheless
    one.commit([one.write(iter([]))], 1)
    assert DeltaTable(str(tmp_path)).version() == 1
    assert sequences(tmp_path) == [1, 2, 3]


def test_a_batch_is_done_though_its_table_could_not_be_compacted(
    tmp_path: Path,
) -> None:
    def broken(uri: str, keep_files: float) -> None:
        raise DeltaError(f"{uri} for {keep_files} s: no space left on device")

    upkeep = Upkeep(every=2, keep_files=86_400)
    with captured_logs() as logged:
        for n in range(4):
            upkeep.maintain(str(tmp_path), n, broken)
    assert [x["event"] for x in logged] == ["table.not_compacted"] * 2


def test_a_table_with_other_columns_or_made_for_something_else_is_refused(
    tmp_path: Path,
) -> None:
    uri = str(tmp_path)
    refuse_another(uri, SCHEMA, "hours")
    assert list(tmp_path.iterdir()) == []
    ensure_table(uri, SCHEMA, "hours")
    ensure_table(uri, SCHEMA, "hours")
    fewer = pa.schema([("key", pa.string())])
    wider = pa.schema([("key", pa.string()), ("sequence", pa.float64())])
    for other, told in ((fewer, "key string"), (wider, "sequence double")):
        with pytest.raises(UserError, match=told):
            refuse_another(uri, other, "hours")
    with pytest.raises(UserError, match=r"hours.*days"):
        ensure_table(uri, SCHEMA, "days")


def merged(uri: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, how: Merge) -> None:
    ensure_table(str(uri), schema)
    merge_here(str(uri), pa.Table.from_pylist(list(rows), schema), how)


def test_keys_that_are_null_are_one_key(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.int64()), ("who", pa.string()), ("total", pa.int64())])
    for total in (1, 2):
        rows = [{"at": 1, "who": x, "total": total} for x in ("me", None)]
        merged(tmp_path, rows, schema, Merge(keys=("at", "who"), nullable=True))
    assert sorted((x["who"] or "", x["total"]) for x in rows_of(tmp_path)) == [
        ("", 2),
        ("me", 2),
    ]


STATE = pa.schema(
    [
        *(("key", pa.string()), ("id", pa.string()), ("generation", pa.int32())),
        *(("sequence", pa.int64()), ("body", pa.string()), ("deleted", pa.bool_())),
    ]
)
ITEMS = st.tuples(st.sampled_from("abc"), st.sampled_from("xy"))


def a_change(item: tuple[str, str], generation: int, sequence: int) -> dict[str, Any]:
    """Make the one change of this name: every third deletes the item."""
    deleted = sequence % 3 == 2
    return {
        "key": item[0],
        "id": item[1],
        "generation": generation,
        "sequence": sequence,
        "body": None if deleted else f"{generation}.{sequence}",
        "deleted": deleted,
    }


def order(change: Mapping[str, Any]) -> tuple[int, int]:
    return (change["generation"], change["sequence"])


def newest_of(changes: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The model: the last of each item's changes by their order, whenever they came."""
    return {(x["key"], x["id"]): x for x in sorted(changes, key=order)}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(
            st.builds(a_change, ITEMS, st.integers(0, 2), st.integers(1, 6)),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_the_latest_is_that_of_a_model_whatever_is_merged_in_whatever_order(
    batches: list[list[dict[str, Any]]],
) -> None:
    with TemporaryDirectory() as directory:
        for number, changes in enumerate(batches):
            merged(Path(directory), list(newest_of(changes).values()), STATE, MERGE)
            if number == 2:
                compact(directory, 168)
        found = rows_of(directory)
    assert newest_of(found) == newest_of(x for changes in batches for x in changes)
    assert len(found) == len(newest_of(found))


def small_files(tmp_path: Path, count: int, *, upkeep: Upkeep | None = None) -> DeltaAppender:
    ensure_table(str(tmp_path), SCHEMA)
    one = DeltaAppender(str(tmp_path), SCHEMA, checkpoint=None, app_id="query", upkeep=upkeep)
    for number in range(count):
        one.commit([one.write(iter([batch(number)]))], number)
    return one


def aged(file: Path, hours: int) -> None:
    then = time.time() - hours * 3600
    os.utime(file, (then, then))


def test_every_so_many_batches_small_files_become_one_and_readers_see_all_meanwhile(
    tmp_path: Path,
) -> None:
    one = small_files(tmp_path, 9, upkeep=Upkeep(every=10, keep_files=86_400))
    before = DeltaTable(str(tmp_path))
    assert len(before.file_uris()) == 9
    one.commit([one.write(iter([batch(9)]))], 9)
    assert len(DeltaTable(str(tmp_path)).file_uris()) == 1
    assert sequences(tmp_path) == list(range(10))
    assert pa.table(before.to_pyarrow_table()).num_rows == 9


def test_upkeep_removes_old_files_that_are_no_part_of_the_table_and_no_others(
    tmp_path: Path,
) -> None:
    one = small_files(tmp_path, 3)
    stuck, running = (one.write(iter([batch(77)])) for _ in range(2))
    assert isinstance(stuck, Written)
    assert isinstance(running, Written)
    aged(tmp_path / stuck.files[0].name, 25)
    compact(str(tmp_path), 24)
    assert not (tmp_path / stuck.files[0].name).exists()
    one.commit([running], 3)
    assert sequences(tmp_path) == [0, 1, 2, 77]


def test_a_table_that_somebody_else_writes_again_meanwhile_is_left_to_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(tmp_path, 3)
    behind = DeltaTable(str(tmp_path))
    merged(tmp_path, [{"key": "k", "sequence": 1}], SCHEMA, Merge(keys=("sequence",)))
    version = DeltaTable(str(tmp_path)).version()
    with pytest.raises(CommitFailedError):
        behind.optimize.compact()
    monkeypatch.setattr(delta, "DeltaTable", lambda _: behind)
    Upkeep(every=1, keep_files=86_400).maintain(str(tmp_path), 0, compact)
    assert DeltaTable(str(tmp_path)).version() == version
    assert sequences(tmp_path) == [0, 1, 2]


def test_which_batches_were_added_outlives_compaction_and_the_log_that_said_so(
    tmp_path: Path,
) -> None:
    one = small_files(tmp_path, 3)
    compact(str(tmp_path), 1)
    DeltaTable(str(tmp_path)).create_checkpoint()
    *earlier, _ = sorted((tmp_path / "_delta_log").glob("*.json"))
    for entry in earlier:
        entry.unlink()
    one.commit([one.write(iter([batch(2)]))], 2)
    one.commit([one.write(iter([batch(3)]))], 3)
    assert sequences(tmp_path) == [0, 1, 2, 3]
