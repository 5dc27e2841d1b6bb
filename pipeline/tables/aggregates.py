"""Counts and sums by windows of time.

Spark keeps the running figures; each batch gives the windows that changed, whole, and these
take the place of what the table has. A repeated batch gives the same figures again.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from pipeline.settings import AggregateSettings

from .merging import merge

_TIME = "committed_at"


def windowed(changes: DataFrame, settings: AggregateSettings) -> DataFrame:
    """Return the figures: window_start, window_end, what ``by`` names, changes, the sums."""
    if settings.where is not None:
        changes = changes.where(settings.where)
    by = [F.expr(text).alias(name) for name, text in settings.by.items()]
    sums = [F.expr(text).alias(f"__{name}") for name, text in settings.sums.items()]
    changes = changes.select(_TIME, *by, *sums)
    if settings.watermark is not None:
        changes = changes.withWatermark(_TIME, settings.watermark)
    figures = changes.groupBy(F.window(_TIME, settings.window), *settings.by).agg(
        F.count("*").alias("changes"),
        *(F.sum(f"__{name}").alias(name) for name in settings.sums),
    )
    return figures.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *settings.by,
        "changes",
        *settings.sums,
    )


class AggregateTable:
    """Merges the figures of one query into a table."""

    def __init__(self, uri: str, settings: AggregateSettings) -> None:
        self._uri = uri
        self._keys = ["window_start", *settings.by]

    def __call__(self, batch: DataFrame, number: int) -> None:  # noqa: ARG002 - Spark tells it
        merge(self._uri, batch.toArrow(), keys=self._keys)
