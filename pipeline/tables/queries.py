"""Starting the queries that keep the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changefeed.pipeline.checkpoint_dir import is_elsewhere
from changefeed.pipeline.settings import AggregateSettings, PipelineSettings, UpkeepSettings
from changefeed.pipeline.source.body_schema import with_bodies
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.record_batches import EVERYTHING
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.supervisor import started
from changefeed.pipeline.tables.aggregates import aggregated
from changefeed.pipeline.tables.delta_sink import NAME as SINK
from changefeed.pipeline.tables.delta_sink import register_sink
from changefeed.pipeline.tables.delta_table import (
    Upkeep,
    arrow_schema,
    ensure_table,
    refuse_another,
)
from changefeed.pipeline.tables.filling import (
    FAR_BEHIND,
    AppendedFiles,
    Filling,
    kept_rows,
)
from changefeed.pipeline.tables.latest import MERGE, newest
from changefeed.pipeline.tables.merge import Merge, MergedTable, as_they_are


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The query of one table, not started yet, and the Delta table it needs."""

    name: str
    writer: DataStreamWriter
    interval: float
    uri: str
    schema: pa.Schema
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The queries of one pipeline. ``once``: read what is there now, then end.

    ``hold`` can bring them to rest between two batches. ``starts`` is where each table
    starts, if it is not what the settings say. ``far`` is how many changes a table must be
    behind to be filled.
    """

    spark: SparkSession
    settings: PipelineSettings
    once: bool = False
    hold: DrainGate | None = None
    starts: Mapping[str, Offset] = field(default_factory=dict)
    far: int = FAR_BEHIND

    def fillers(self) -> Mapping[str, Filling]:
        """Return what fills tables that are far behind, where a query can be filled.

        Call it once the tables are there: after ``starters``.
        """
        changes, latest = self.settings.changes, self.settings.latest
        tables: dict[str, Callable[[DataFrame, int], None]] = {}
        uri = self.settings.table("changes")
        if changes.enabled and not is_elsewhere(uri):
            checkpoint = self.settings.checkpoint("changes")
            tables["changes"] = AppendedFiles(
                uri=uri, checkpoint=checkpoint, upkeep=upkeep_of(changes)
            )
        if latest.enabled:
            tables["latest"] = self._table("latest", MERGE, latest, newest)
        return {
            name: Filling(
                spark=self.spark,
                settings=self.settings,
                name=name,
                table=table,
                options=self._options(name),
                far=self.far,
            )
            for name, table in tables.items()
        }

    def starters(self) -> Mapping[str, Callable[[], StreamingQuery]]:
        """Return what starts the query of each table that the settings name.

        The Delta tables are there then. Raise ``PipelineRefused``, before anything is
        written, if one cannot be kept as the settings say.
        """
        planned = self._planned()
        for x in planned:
            refuse_another(x.uri, x.schema, x.definition)
        for x in planned:
            ensure_table(x.uri, x.schema, x.definition)
        return {x.name: partial(self._started, x) for x in planned}

    def _planned(self) -> list[Planned]:
        settings = self.settings
        return [
            *([self._changes()] if settings.changes.enabled else []),
            *([self._latest()] if settings.latest.enabled else []),
            *(self._aggregate(x) for x in settings.aggregates),
        ]

    def _changes(self) -> Planned:
        settings, uri = self.settings.changes, self.settings.table("changes")
        rows = self._kept("changes")
        register_sink(self.spark)
        writer = rows.writeStream.format(SINK).options(
            path=uri,
            compactEvery=str(settings.compact_every),
            keepHours=str(settings.keep_hours),
        )
        return Planned(
            name="changes",
            writer=writer,
            interval=settings.interval,
            uri=uri,
            schema=arrow_schema(rows.schema),
        )

    def _latest(self) -> Planned:
        settings, rows = self.settings.latest, self._kept("latest")
        table = self._table("latest", MERGE, settings, newest)
        return Planned(
            name="latest",
            writer=rows.writeStream.foreachBatch(table),
            interval=settings.interval,
            uri=table.uri,
            schema=arrow_schema(newest(rows).schema),
        )

    def _aggregate(self, settings: AggregateSettings) -> Planned:
        figures, merge = aggregated(self._parsed(settings.name), settings)
        table = self._table(settings.name, merge, settings)
        return Planned(
            name=settings.name,
            writer=figures.writeStream.outputMode("update").foreachBatch(table),
            interval=settings.interval,
            uri=table.uri,
            schema=arrow_schema(figures.schema),
            definition=settings.select.strip(),
        )

    def _table(
        self,
        name: str,
        merge: Merge,
        settings: UpkeepSettings,
        rows: Callable[[DataFrame], DataFrame] = as_they_are,
    ) -> MergedTable:
        uri, upkeep = self.settings.table(name), upkeep_of(settings)
        return MergedTable(uri=uri, merge=merge, upkeep=upkeep, rows=rows)

    def _kept(self, name: str) -> DataFrame:
        return kept_rows(self._read(name), self.settings.body_schema)

    def _parsed(self, name: str) -> DataFrame:
        schema = self.settings.body_schema
        return self._read(name) if schema is None else with_bodies(self._read(name), schema)

    def _read(self, name: str) -> DataFrame:
        return stream(self.spark, self.settings.feed, **self._options(name))

    def _options(self, name: str) -> Mapping[str, str]:
        start = self.starts.get(name)
        hold = {} if self.hold is None else {"holdFile": self.hold.file(name)}
        return {
            "startingAt": start.as_text() if start else self.settings.start,
            "columns": ",".join(EVERYTHING),
            "maxChangesPerTrigger": str(self.settings.max_changes),
            **hold,
        }

    def _started(self, planned: Planned) -> StreamingQuery:
        return started(
            planned.writer,
            planned.name,
            checkpoint=self.settings.checkpoint(planned.name),
            interval=None if self.once else planned.interval,
        )


def upkeep_of(settings: UpkeepSettings) -> Upkeep:
    return Upkeep(every=settings.compact_every, keep_hours=settings.keep_hours)
