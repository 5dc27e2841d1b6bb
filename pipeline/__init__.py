"""A feed as Spark tables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", feed: str, **options: str) -> "DataFrame":
    """Return the changes of a feed between two points, with the columns of a change.

    ``feed`` is its address; ``options`` are those of the source: ``startingAt``,
    ``endingAt``, ``ranges``, ``columns``, ``mode``, ``sliceChanges``. What is read is settled
    now. Of an event log, Spark reads by itself what is in segments. Raise ``FeedRefused`` for
    what is no feed, and ``UserError`` for a wrong option.
    """
    from changefeed.pipeline.source.backlog import read as read_backlog  # noqa: PLC0415 - spark

    return read_backlog(spark, feed, **options)
