"""Counts and sums by windows of time.

Spark keeps the running figures; each batch gives the windows that changed, whole, and these
take the place of what the table has. A repeated batch gives the same figures again.
"""

import json
from collections.abc import Mapping

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.types import NumericType

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import AggregateSettings
from changefeed.pipeline.source.body_schema import spark_message
from changefeed.pipeline.tables.merge import Merge

_TIME = "__time"


def windowed(changes: DataFrame, settings: AggregateSettings) -> DataFrame:
    """Return the figures: window_start, window_end, what ``by`` names, changes, the sums.

    Raise ``PipelineRefused`` for settings that are no SQL over these changes.
    """
    if settings.where is not None:
        _checked(changes, settings, {"where": settings.where})
    by = _checked(changes, settings, settings.by, "by.")
    sums = _checked(changes, settings, settings.sums, "sums.")
    for name, column in sums.items():
        _refuse_text(changes, settings, name, column)
    try:
        return _figures(changes, settings, by, sums)
    except (AnalysisException, IllegalArgumentException) as error:
        raise _refused(settings, "its settings", spark_message(error)) from error


def definition(settings: AggregateSettings) -> str:
    """Return what the figures mean: what must not change under a table that has some."""
    meaning = ("window", "by", "sums", "where")
    return json.dumps(settings.model_dump(include=set(meaning)), sort_keys=True)


def merge_of(settings: AggregateSettings) -> Merge:
    return Merge(keys=("window_start",), nullable=tuple(settings.by))


def _figures(
    changes: DataFrame,
    settings: AggregateSettings,
    by: Mapping[str, Column],
    sums: Mapping[str, Column],
) -> DataFrame:
    if settings.where is not None:
        changes = changes.where(settings.where)
    changes = changes.select(
        F.col("committed_at").alias(_TIME),
        *(column.alias(name) for name, column in by.items()),
        *(column.alias(f"__{name}") for name, column in sums.items()),
    )
    if settings.watermark is not None:
        changes = changes.withWatermark(_TIME, settings.watermark)
    figures = changes.groupBy(F.window(_TIME, settings.window), *by).agg(
        F.count("*").alias("changes"),
        *(F.try_sum(f"__{name}").alias(name) for name in sums),  # null where it overflows
    )
    return figures.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *by,
        "changes",
        *sums,
    )


def _checked(
    changes: DataFrame, settings: AggregateSettings, given: Mapping[str, str], prefix: str = ""
) -> Mapping[str, Column]:
    """Return the columns of SQL expressions, each tried by itself."""
    found: dict[str, Column] = {}
    for name, text in given.items():
        try:
            found[name] = F.expr(text)
            changes.select(found[name])
        except AnalysisException as error:
            raise _refused(
                settings, f"{prefix}{name} = {text!r}", spark_message(error)
            ) from error
    return found


def _refuse_text(
    changes: DataFrame, settings: AggregateSettings, name: str, column: Column
) -> None:
    """Refuse what Spark would read as numbers, and stop at the first text that is none."""
    kind = changes.select(column).schema[0].dataType
    if not isinstance(kind, NumericType):
        raise _refused(
            settings,
            f"sums.{name} = {settings.sums[name]!r}",
            f"this is {kind.simpleString().upper()}, not a number: "
            f"try_cast(... AS DOUBLE) makes it one, and leaves out what is none",
        )


def _refused(settings: AggregateSettings, what: str, reason: str) -> PipelineRefused:
    return PipelineRefused(f"the table {settings.name!r} cannot be kept: {what}: {reason}")
