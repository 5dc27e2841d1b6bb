"""Starting the queries that keep the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.settings import AggregateSettings, PipelineSettings
from pipeline.source.envelope import EVERYTHING
from pipeline.source.bodies import with_bodies
from pipeline.source.spark import NAME

from .aggregates import AggregateTable, windowed
from .appending import NAME as SINK
from .appending import arrow_schema, ensure_table, register_sink
from .latest import LatestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The queries of one pipeline. ``once``: read what is there now, then end."""

    spark: SparkSession
    settings: PipelineSettings
    once: bool = False

    def starters(self) -> Mapping[str, Callable[[], StreamingQuery]]:
        """Return what starts the query of each table that the settings name."""
        found: dict[str, Callable[[], StreamingQuery]] = {}
        if self.settings.changes.enabled:
            found["changes"] = self._changes
        if self.settings.latest.enabled:
            found["latest"] = self._latest
        return found | {x.name: partial(self._aggregate, x) for x in self.settings.aggregates}

    def _changes(self) -> StreamingQuery:
        settings, path = self.settings.changes, self.settings.table("changes")
        rows = self._rows()
        if settings.format == "delta":
            register_sink(self.spark)
            ensure_table(path, arrow_schema(rows.schema))
        writer = rows.writeStream.format(SINK if settings.format == "delta" else "parquet")
        return self._started(writer.option("path", path), "changes", settings.interval)

    def _latest(self) -> StreamingQuery:
        settings = self.settings.latest
        table = LatestTable(self.settings.table("latest"), compact_every=settings.compact_every)
        writer = self._rows().writeStream.foreachBatch(table)
        return self._started(writer, "latest", settings.interval)

    def _aggregate(self, settings: AggregateSettings) -> StreamingQuery:
        table = AggregateTable(self.settings.table(settings.name), settings)
        figures = windowed(self._rows(), settings)
        writer = figures.writeStream.outputMode("update").foreachBatch(table)
        return self._started(writer, settings.name, settings.interval)

    def _rows(self) -> DataFrame:
        settings = self.settings
        changes = (
            self.spark.readStream.format(NAME)
            .option("feed", settings.feed)
            .option("startingAt", settings.start)
            .option("columns", ",".join(EVERYTHING))
            .option("maxChangesPerTrigger", str(settings.max_changes))
            .load()
        )
        if settings.body_schema is None:
            return changes
        return with_bodies(changes, settings.body_schema)

    def _started(self, writer: DataStreamWriter, name: str, interval: float) -> StreamingQuery:
        writer = writer.queryName(name).option(
            "checkpointLocation", self.settings.checkpoint(name)
        )
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds").start()
