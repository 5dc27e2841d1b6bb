"""Merging rows into a Delta table, so that merging them again changes nothing.

Two ways to the same table. Where the session has Delta (its jar, and both settings that
Delta asks for), Spark's own MERGE runs on the executors. Else a batch passes through the
driver, and ``deltalake`` merges it there: enough for one machine, where a batch has at most
``max_changes`` rows. The engine that merges a table compacts it, too.

A merge writes every file again in which a row changes. Files whose least and greatest keys
are away from those of the batch are not even read, which is why keys are compared by plain
equality where none can be null.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties
from pyspark.sql import DataFrame, SparkSession

from changefeed.pipeline.delta_jar import DELTA
from changefeed.pipeline.tables.delta_table import Upkeep, compact, whole_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Which rows are the same, and when one gives way to another.

    Two nulls in keys that are ``nullable`` are the same. ``newer`` is a condition over the
    rows ``s`` (from the batch) and ``t`` (in the table) under which a row is replaced;
    without it, always.
    """

    keys: Sequence[str]
    nullable: bool = False
    newer: str | None = None

    @property
    def same(self) -> str:
        """Return the condition to join by: one operator for all keys.

        Else, or with an OR for nulls, ``deltalake`` would join by some of the keys or by
        none, and compare every row with every other.
        """
        operator = "IS NOT DISTINCT FROM" if self.nullable else "="
        return " AND ".join(f"(t.`{x}` {operator} s.`{x}`)" for x in self.keys)


def as_they_are(batch: DataFrame) -> DataFrame:
    return batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """What ``foreachBatch`` calls: merges the rows of each batch. The table has to be there."""

    uri: str
    merge: Merge
    upkeep: Upkeep
    rows: Callable[[DataFrame], DataFrame]

    def __call__(self, batch: DataFrame, number: int) -> None:
        spark, rows = batch.sparkSession, self.rows(batch)
        if has_delta(spark, self.uri):
            merge_in_spark(self.uri, rows, self.merge)
            self.upkeep.maintain(self.uri, number, partial(compact_in_spark, spark))
        else:
            merge_here(self.uri, rows.toArrow(), self.merge)
            self.upkeep.maintain(self.uri, number, compact)


def merge_here(uri: str, rows: pa.Table, how: Merge) -> None:
    """Merge in this process. The rows are in memory, so their bounds are known."""
    if not rows.num_rows:
        return
    (
        DeltaTable(uri)
        .merge(
            rows,
            predicate=how.same,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            writer_properties=WriterProperties(compression="ZSTD"),
        )
        .when_matched_update_all(predicate=how.newer)
        .when_not_matched_insert_all()
        .execute()
    )


def merge_in_spark(uri: str, rows: DataFrame, how: Merge) -> None:
    """Merge on the executors."""
    newer = "" if how.newer is None else f"AND ({how.newer})"
    rows.sparkSession.sql(
        f"MERGE INTO {_named(uri)} AS t USING {{rows}} AS s ON {how.same} "
        f"WHEN MATCHED {newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        rows=rows,
    )


def compact_in_spark(spark: SparkSession, uri: str, keep_files: float) -> None:
    """Do on the executors what ``compact`` does."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"OPTIMIZE {_named(uri)}")
    spark.sql(f"VACUUM {_named(uri)} RETAIN {whole_hours(keep_files)} HOURS")


def has_delta(spark: SparkSession, uri: str) -> bool:
    """Return whether a session has Delta: it is configured, and reads this table as such."""
    if any(wanted not in (spark.conf.get(x, "") or "") for x, wanted in DELTA.items()):
        return False
    try:
        spark.read.format("delta").load(uri).schema  # noqa: B018 - Connect asks here
    except Exception:  # noqa: BLE001 - without the jar, each Spark raises something else
        return False
    return True


def _named(uri: str) -> str:
    return f"delta.`{uri.replace('`', '``')}`"
