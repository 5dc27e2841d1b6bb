"""Starting the queries that keep the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changefeed.pipeline.checkpoint_dir import is_elsewhere
from changefeed.pipeline.settings import AggregateSettings, PipelineSettings
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
    table_rows,
)
from changefeed.pipeline.tables.latest import MERGE, newest
from changefeed.pipeline.tables.merge import Merge, MergedTable, as_they_are


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The query of one table, not started yet, and the Delta table it needs."""

    name: str
    writer: DataStreamWriter
    interval: float
    schema: pa.Schema
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
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
        settings = self.settings
        tables: dict[str, Callable[[DataFrame, int], None]] = {}
        uri = settings.table("changes")
        if settings.changes.enabled and not is_elsewhere(uri):
            checkpoint = settings.checkpoint("changes")
            tables["changes"] = AppendedFiles(
                uri=uri, checkpoint=checkpoint, upkeep=self._upkeep
            )
        if settings.latest.enabled:
            tables["latest"] = self._merged("latest", MERGE, newest)
        return {
            name: Filling(
                spark=self.spark,
                settings=settings,
                name=name,
                table=table,
                options=self._options(name),
                far=self.far,
            )
            for name, table in tables.items()
        }

    def starters(self) -> Mapping[str, Callable[[], StreamingQuery]]:
        """Return what starts the query of each table that the settings name.

        The Delta tables are there then. Raise ``UserError``, before anything is
        written, if one cannot be as the settings say.
        """
        plans, uri = self._plans(), self.settings.table
        for x in plans:
            refuse_another(uri(x.name), x.schema, x.definition)
        for x in plans:
            ensure_table(uri(x.name), x.schema, x.definition)
        return {x.name: partial(self._started, x) for x in plans}

    def _plans(self) -> list[TablePlan]:
        settings = self.settings
        return [
            *([self._changes()] if settings.changes.enabled else []),
            *([self._latest()] if settings.latest.enabled else []),
            *(self._aggregate(x) for x in settings.aggregates),
        ]

    def _changes(self) -> TablePlan:
        rows = self._rows("changes")
        register_sink(self.spark)
        writer = rows.writeStream.format(SINK).options(
            path=self.settings.table("changes"),
            compactEvery=str(self._upkeep.every),
            keepFiles=str(self._upkeep.keep_files),
        )
        return TablePlan(
            name="changes",
            writer=writer,
            interval=self.settings.changes.interval,
            schema=arrow_schema(rows.schema),
        )

    def _latest(self) -> TablePlan:
        rows = self._rows("latest")
        return TablePlan(
            name="latest",
            writer=rows.writeStream.foreachBatch(self._merged("latest", MERGE, newest)),
            interval=self.settings.latest.interval,
            schema=arrow_schema(newest(rows).schema),
        )

    def _aggregate(self, settings: AggregateSettings) -> TablePlan:
        changes, schema = self._read(settings.name), self.settings.body_schema
        parsed = changes if schema is None else with_bodies(changes, schema)
        figures, merge = aggregated(parsed, settings)
        table = self._merged(settings.name, merge, as_they_are)
        return TablePlan(
            name=settings.name,
            writer=figures.writeStream.outputMode("update").foreachBatch(table),
            interval=settings.interval,
            schema=arrow_schema(figures.schema),
            definition=settings.select.strip(),
        )

    @property
    def _upkeep(self) -> Upkeep:
        return Upkeep(every=self.settings.compact_every, keep_files=self.settings.keep_files)

    def _merged(
        self, name: str, merge: Merge, rows: Callable[[DataFrame], DataFrame]
    ) -> MergedTable:
        uri = self.settings.table(name)
        return MergedTable(uri=uri, merge=merge, upkeep=self._upkeep, rows=rows)

    def _rows(self, name: str) -> DataFrame:
        return table_rows(self._read(name), self.settings.body_schema)

    def _read(self, name: str) -> DataFrame:
        return stream(self.spark, self.settings.feed, **self._options(name))

    def _options(self, name: str) -> Mapping[str, str]:
        start = self.starts.get(name)
        hold = {} if self.hold is None else {"holdFile": self.hold.file(name)}
        return {
            "startingAt": start.as_text() if start else self.settings.start,
            "columns": ",".join(EVERYTHING),
            "maxChangesPerBatch": str(self.settings.max_changes),
            **hold,
        }

    def _started(self, plan: TablePlan) -> StreamingQuery:
        return started(
            plan.writer,
            plan.name,
            checkpoint=self.settings.checkpoint(plan.name),
            interval=None if self.once else plan.interval,
        )
