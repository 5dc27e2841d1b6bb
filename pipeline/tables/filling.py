"""Filling the tables ``changes`` and ``latest`` when they are far behind.

What is in segments of an event log Spark reads by itself (``source.backlog``), in batches
of the same size and with the same offsets as in a stream. For ``changes`` Spark writes the
files by itself, too, so that no row passes through Python; the commit that adds them is the
same as that of the sink (``delta_sink``): it names the query and the batch, and is made once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from changefeed.feeds.errors import FeedUnavailable
from changefeed.pipeline.checkpoint_dir import committed, is_elsewhere
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.backlog import changes_of, fill_stream, waiting
from changefeed.pipeline.source.body_schema import VALUE, VARIANT, with_bodies
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from changefeed.pipeline.supervisor import started
from changefeed.pipeline.tables.delta_sink import (
    File,
    append_once,
    file_system,
    is_added,
    query_id,
)
from changefeed.pipeline.tables.delta_table import COMPRESSION, Upkeep, compact
from changefeed.runtime.logs import get_logger

_log = get_logger()

FAR_BEHIND: Final = 10_000
"""Changes. Fewer are read through the source in less time than another query takes to start."""

_WRITING: Final[Mapping[str, str]] = {
    # Spark knows these as settings of a session only. That of a query is a copy of its own.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What starts the query that fills a table, if it is ``far`` behind: see ``Filler``.

    ``table`` takes the rows of a batch and its number; ``options`` are those of the source.
    """

    spark: SparkSession
    settings: PipelineSettings
    name: str
    table: Callable[[DataFrame, int], None]
    options: Mapping[str, str]
    far: int = FAR_BEHIND

    def __call__(self) -> StreamingQuery | None:
        settings, checkpoint = self.settings, self.settings.checkpoint(self.name)
        done = None if is_elsewhere(checkpoint) else committed(checkpoint)
        offset = None if done is None else done.offset
        try:
            changes = waiting(settings.feed, offset, self.options)
        except FeedUnavailable:
            return None  # the query that goes on says so, and is tried again
        if changes < self.far:
            return None
        _log.info("table.progress", table=self.name, to_fill=changes)
        slices = fill_stream(self.spark, settings.feed, **self.options)
        batches = slices.writeStream.foreachBatch(self._take)
        return started(batches, self.name, checkpoint=checkpoint, interval=None)

    def _take(self, slices: DataFrame, number: int) -> None:
        changes = changes_of(slices, self.settings.feed, Envelope(columns=EVERYTHING))
        self.table(table_rows(changes, self.settings.body_schema), number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFiles:
    """Appends the rows of each batch of a query to a Delta table on this machine, once.

    The files of a batch are in a folder of their own. What a batch that failed, or was in
    the table before, has written is removed with all that is part of no commit.
    """

    uri: str
    checkpoint: str
    upkeep: Upkeep

    def __call__(self, rows: DataFrame, number: int) -> None:
        query = query_id(self.checkpoint)
        if not is_added(DeltaTable(self.uri), app_id=query, batch=number):
            files = write_files(self.uri, rows)
            append_once(self.uri, files, app_id=query, batch=number)
        self.upkeep.maintain(self.uri, number, compact)


def write_files(uri: str, rows: DataFrame) -> list[File]:
    """Have Spark write rows beside a table, in files that are no part of it yet."""
    for name, value in _WRITING.items():
        rows.sparkSession.conf.set(name, value)
    folder = f"fill-{uuid4()}"
    writer = rows.write.option("compression", COMPRESSION)
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
        f"{uri}/{folder}"
    )
    files, root = file_system(uri)
    found = []
    for x in files.get_file_info(FileSelector(f"{root}/{folder}")):
        if x.extension == "parquet":
            count = pq.read_metadata(x.path, filesystem=files).num_rows
            found.append(File(name=f"{folder}/{x.base_name}", size=x.size, rows=count))
    return [x for x in found if x.rows]


def table_rows(changes: DataFrame, body_schema: str | None) -> DataFrame:
    """Return the rows of a table. No table can have a VARIANT: ``body`` has the same."""
    if body_schema is None:
        return changes
    rows = with_bodies(changes, body_schema)
    return rows.drop(VALUE) if body_schema.strip().lower() == VARIANT else rows
