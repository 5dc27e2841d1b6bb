"""Figures by groups of changes: what a SELECT with GROUP BY says, in SQL of Spark.

Spark keeps the running figures; each batch gives the groups that changed, whole, and these
take the place of what the table has. A repeated batch gives the same figures again. Which
columns name a group, Spark's own plan of the SELECT says.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import AggregateSettings
from changefeed.pipeline.source.body_schema import spark_message
from changefeed.pipeline.tables.merge import Merge

_VIEW = "changes"
_WINDOW = "struct<start:timestamp,end:timestamp>"


def aggregated(changes: DataFrame, settings: AggregateSettings) -> tuple[DataFrame, Merge]:
    """Return the figures, and how they are merged.

    Raise ``PipelineRefused`` for what is no SELECT with GROUP BY over these changes.
    """
    try:
        if settings.watermark is not None:
            changes = changes.withWatermark(
                "committed_at", f"{settings.watermark * 1000:.0f} milliseconds"
            )
        changes.createOrReplaceTempView(_VIEW)
        figures = changes.sparkSession.sql(settings.select)
    except AnalysisException as error:
        raise _refused(settings, spark_message(error)) from error
    return figures, Merge(keys=_group_columns(figures, settings), nullable=True)


def _group_columns(figures: DataFrame, settings: AggregateSettings) -> Sequence[str]:
    """Return the columns that name a group: one for each expression of GROUP BY."""
    jvm: Any = figures._jdf  # noqa: SLF001 - nothing else has the plan
    plan = jvm.queryExecution().analyzed()
    if plan.nodeName() != "Aggregate" or not figures.isStreaming:
        raise _refused(settings, "it has to be one SELECT over changes with GROUP BY")
    columns = {y: x.name() for x in _each(plan.aggregateExpressions()) for y in _texts(x)}
    found = []
    for group in _each(plan.groupingExpressions()):
        is_window = group.dataType().simpleString() == _WINDOW
        name = columns.get(f"{group.toString()}.start" if is_window else group.toString())
        if name is None:
            raise _refused(
                settings,
                f"select {group.sql()}{'.start' if is_window else ''} as a column: each row "
                f"has to say which group it is of",
            )
        found.append(name)
    if not found:
        raise _refused(settings, "it has no GROUP BY")
    return found


def _texts(column: Any) -> Iterator[str]:
    """Yield a column as the plan has it, and what it is a name for."""
    yield column.toString()
    yield from (x.toString() for x in _each(column.children()))


def _each(found: Any) -> Iterator[Any]:
    return (found.apply(n) for n in range(found.size()))


def _refused(settings: AggregateSettings, reason: str) -> PipelineRefused:
    return PipelineRefused(f"the table {settings.name!r} cannot be kept: {reason}")
