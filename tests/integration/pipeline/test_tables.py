"""The tables that a pipeline keeps, read back and compared with what was appended."""

import json
import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from changefeed.feeds.feed import Operation
from changefeed.log.records import Record
from changefeed.pipeline.settings import AggregateSettings, PipelineSettings
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.tables.aggregates import aggregated
from changefeed.pipeline.tables.queries import TableQueries
from changefeed.runtime.errors import UserError
from tests.support.delta_rows import rows_of
from tests.support.pipeline_feeds import a_log, append_records
from tests.support.spark_queries import forget_the_last_commit, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OFF = {"enabled": False}
PAGE = Path(__file__).parents[3] / "docs/pipeline.md"

HOURLY = (
    "SELECT window.start AS window_start, count(*) AS changes FROM changes "
    "GROUP BY window(committed_at, '1 hour')"
)


def by_day(*sums: str, where: str = "true") -> str:
    columns = ", ".join(("window.start AS window_start", "count(*) AS changes", *sums))
    return f"SELECT {columns} FROM changes WHERE {where} GROUP BY window(committed_at, '1 day')"


def append(path: Path, *records: Record) -> None:
    append_records(path, records)


def settings(tmp_path: Path, **more: Any) -> PipelineSettings:
    found = {"feed": f"eventlog:{tmp_path / 'log'}", "directory": str(tmp_path / "tables")}
    return PipelineSettings.model_validate({**found, **more})


def kept(
    spark: "SparkSession", wanted: PipelineSettings
) -> Sequence[Sequence[Mapping[str, Any]]]:
    """Bring the tables up to date; return the progress that each query told."""
    starters = TableQueries(spark=spark, settings=wanted, once=True).starters()
    queries = [run_to_end(start) for start in starters.values()]
    return [[json.loads(x.json) for x in query.recentProgress] for query in queries if query]


def put(key: str, body: bytes, at: int = 0) -> Record:
    return Record(key=key, body=body, operation=Operation.REPLACE, committed_us=at * 1_000_000)


def test_every_change_is_appended_once_and_the_latest_of_each_item_is_kept(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 3, "b": 2}, parts=2)
    wanted = settings(tmp_path, max_changes=4, body_schema="n INT")
    kept(spark, wanted)
    append(
        tmp_path / "log",
        put("a", b'{"n": 70}'),
        Record(key="b", operation=Operation.DELETE),
        put("c", b'{"n": "many"}'),
    )
    kept(spark, wanted)
    forget_the_last_commit(wanted, "changes")
    forget_the_last_commit(wanted, "latest")
    kept(spark, wanted)
    changes = rows_of(wanted.table("changes"))
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 8
    latest = {x["key"]: x for x in rows_of(wanted.table("latest"))}
    assert {key: (x["value"]["n"] if x["value"] else None) for key, x in latest.items()} == {
        "a": 70,
        "b": None,
        "c": None,
    }
    assert {key: x["deleted"] for key, x in latest.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert {key: x["rescued"] for key, x in latest.items()} == {
        "a": None,
        "b": None,
        "c": '{"n": "many"}',
    }


def page_sample(heading: str) -> dict[str, Any]:
    """Return the settings that the page shows under a heading."""
    section = PAGE.read_text("utf-8").partition(f"\n{heading}\n")[2]
    found = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    assert found is not None, f"the page has no settings under {heading!r}"
    return tomllib.loads(found[1])


def test_figures_by_a_time_in_the_body_have_each_change_once_however_late(
    spark: "SparkSession", tmp_path: Path
) -> None:
    day, monday, tuesday = 86_400, b"2026-02-02T23:50:00Z", b"2026-02-03T00:10:00Z"
    log = tmp_path / "log"
    a_log(log, {})
    more = {"changes": OFF, "latest": OFF, **page_sample("### By a time in the body")}
    wanted = settings(tmp_path, **more)
    body = b'{"at": "%s", "total": %d}'
    append(log, put("a", body % (monday, 1)), put("b", body % (tuesday, 2)))
    kept(spark, wanted)
    append(log, put("a", body % (monday, 4), at=5 * day), put("c", b'{"at": "?"}', at=5 * day))
    kept(spark, wanted)
    rows = rows_of(wanted.table("by_day"))
    assert len(rows) == 4, "what comes late has a row of its own"
    found: dict[Any, list[float]] = {}
    for x in rows:
        sums = found.setdefault(x["day"] and x["day"].isoformat(), [0, 0.0])
        sums[0] += x["changes"]
        sums[1] += x["total"] or 0.0
    assert found == {"2026-02-02": [2, 5.0], "2026-02-03": [1, 2.0], None: [1, 0.0]}


def test_a_watermark_drops_what_comes_for_windows_that_ended_before_it_and_nothing_else(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {}, parts=1)
    hour, log = 3600, tmp_path / "log"
    figures = {"name": "hourly", "select": HOURLY, "watermark": "10m"}
    wanted = settings(tmp_path, changes=OFF, latest=OFF, aggregates=[figures])
    append(log, put("a", b"1", 0), put("a", b"1", hour + 1), put("a", b"1", 2 * hour))
    kept(spark, wanted)
    append(
        log,
        put("a", b"1", 30),  # its window ended 50 minutes before the watermark
        put("a", b"1", hour + 2),  # an hour late, but its window ends after the watermark
        put("a", b"1", 2 * hour + 1),
    )
    (progress,) = kept(spark, wanted)
    hourly = rows_of(wanted.table("hourly"))
    assert {x["window_start"].hour: x["changes"] for x in hourly} == {
        0: 1,
        1: 2,
        2: 2,
    }
    assert sum(x["stateOperators"][0]["numRowsDroppedByWatermark"] for x in progress) == 1


def test_a_batch_that_was_in_the_tables_before_spark_knew_is_not_counted_twice(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 4, "b": 4}, parts=1)
    figures = {"name": "daily", "select": by_day("sum(value.n) AS total")}
    wanted = settings(tmp_path, body_schema="n INT", aggregates=[figures])
    kept(spark, wanted)
    names = ("changes", "latest", "daily")
    before = {name: rows_of(wanted.table(name)) for name in names}
    for name in names:
        forget_the_last_commit(wanted, name)
    kept(spark, wanted)
    assert {name: rows_of(wanted.table(name)) for name in names} == before
    assert len(before["changes"]) == 8
    (row,) = rows_of(wanted.table("daily"))
    assert (row["changes"], row["total"]) == (8, 12)


def test_a_variant_is_for_figures_and_the_other_tables_keep_the_text(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {}, parts=1)
    append(tmp_path / "log", put("a", b'{"n": [5]}'), put("b", b"{"), put("c", b'{"n": "x"}'))
    total = "try_variant_get(value, '$.n[0]', 'double')"
    figures = {"name": "daily", "select": by_day(f"sum({total}) AS total")}
    wanted = settings(tmp_path, body_schema="variant", aggregates=[figures])
    kept(spark, wanted)
    (row,) = rows_of(wanted.table("daily"))
    assert (row["changes"], row["total"]) == (3, 5.0)
    for name in ("changes", "latest"):
        found = {x["key"]: (x["body"], x["rescued"]) for x in rows_of(wanted.table(name))}
        assert found == {"a": ('{"n": [5]}', None), "b": ("{", "{"), "c": ('{"n": "x"}', None)}


def test_the_columns_that_name_a_group_are_told_from_all_others(
    spark: "SparkSession", tmp_path: Path
) -> None:
    changes = stream(spark, a_log(tmp_path / "log", {"a": 1}))
    hours, text = "window(committed_at, '2 hours', '1 hour')", "concat(key, ', (', ')')"
    many = ", ".join(f"sum(sequence + {n}) AS s{n}" for n in range(40))
    for columns, groups, names in (
        ("key, 'a\nb' AS t, range AS `x AS y`", "range, key", ["x AS y", "key"]),
        (f"{many}, window.start AS s, key", f"key, {hours}", ["key", "s"]),
        (
            f"{text} AS t, id AS `k#1`, sum(if(id = '(', 1, 0)) AS n",
            f"id, {text}",
            ["k#1", "t"],
        ),
        ("id, 1 + 1 AS two, count(*) AS n", "ALL", ["id", "two"]),
    ):
        select = f"SELECT {columns} FROM changes GROUP BY {groups}"
        _, merge = aggregated(changes, AggregateSettings(name="figures", select=select))
        assert merge.keys == names, select


WRONG_FIGURES: tuple[tuple[dict[str, str], str], ...] = (
    ({"select": by_day("sum(value.kin)")}, "'daily' cannot be kept: No such struct field"),
    ({"select": "SELECT value.("}, "cannot be kept: Syntax error"),
    ({"select": by_day("sum(value.n) AS total", where="value.n")}, "cannot be kept"),
    ({"select": "SELECT key FROM changes"}, "one SELECT over changes with GROUP BY"),
    ({"select": "SELECT count(*) AS n FROM changes"}, "it has no GROUP BY"),
    ({"select": f"{HOURLY} HAVING count(*) > 1"}, "one SELECT over changes with GROUP BY"),
    ({"select": HOURLY.replace("window.start AS window_start, ", "")}, r"select window.start"),
    ({"select": f"{HOURLY}, value.kind"}, "select .*kind.* as a column"),
    ({"select": HOURLY.replace("1 hour", "1 hower")}, "cannot be kept"),
    (
        {
            "select": "SELECT window.start AS s FROM "
            "(SELECT named_struct('start', value.n) AS window FROM changes) GROUP BY window"
        },
        "select window as a column",
    ),
    ({"select": "SELECT key AS `a, b` FROM changes GROUP BY key"}, "commas in a name"),
)


def test_wrong_sql_and_schemas_are_told_before_anything_is_written(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 1})
    said_twice = StringIO()
    logging.getLogger("SQLQueryContextLogger").addHandler(logging.StreamHandler(said_twice))
    schema = "kind STRING, n INT"
    wrong: list[tuple[dict[str, Any], str]] = [
        *(
            ({"body_schema": schema, "aggregates": [{"name": "daily", **x}]}, advice)
            for x, advice in WRONG_FIGURES
        ),
        ({"body_schema": "n WHAT"}, "the schema of bodies 'n WHAT' is neither"),
        ({"body_schema": "v VARIANT"}, "'value' is a VARIANT, or has one in it"),
    ]
    for given, advice in wrong:
        with pytest.raises(UserError, match=advice):
            TableQueries(spark=spark, settings=settings(tmp_path, **given)).starters()
    assert not (tmp_path / "tables").exists()
    assert said_twice.getvalue() == ""


def test_settings_that_changed_are_refused_before_anything_is_written(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 1}, parts=1)
    figures = {"name": "daily", "select": by_day()}
    made = {"body_schema": "n INT", "latest": OFF, "aggregates": [figures]}
    kept(spark, settings(tmp_path, **made))
    changed: list[tuple[dict[str, Any], str]] = [
        ({"body_schema": "n DOUBLE"}, "the table .*changes has the columns"),
        (
            {"aggregates": [{**figures, "select": by_day(where="key = 'a'")}], "latest": {}},
            "daily was made for SELECT",
        ),
    ]
    versions = {x: DeltaTable(f"{tmp_path}/tables/{x}").version() for x in ("changes", "daily")}
    for other, advice in changed:
        with pytest.raises(UserError, match=advice):
            TableQueries(
                spark=spark, settings=settings(tmp_path, **{**made, **other})
            ).starters()
    found = {x: DeltaTable(f"{tmp_path}/tables/{x}").version() for x in versions}
    assert found == versions
    assert not (tmp_path / "tables/latest").exists()
    later = {**made, "aggregates": [{**figures, "watermark": "1d"}]}
    TableQueries(spark=spark, settings=settings(tmp_path, **later)).starters()
