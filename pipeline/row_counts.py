"""How many changes a batch had, whatever became of the tasks that read them.

Spark's own count has what lost tasks had read as well. Where positions count changes, the
offsets of a batch say how many there are. Elsewhere Spark counts rows as it takes them from
tasks that ended well, which costs a look at each row.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.streaming.listener import StreamingQueryProgress

from changefeed.pipeline.source.addresses import positions_count_changes

_NAME: Final = "changefeed"


def counted(changes: DataFrame, feed: str) -> DataFrame:
    """Have Spark count the changes of a batch, where the offsets of the feed do not."""
    if positions_count_changes(feed):
        return changes
    return changes.observe(_NAME, F.count(F.lit(1)).alias("changes"))


def rows_counted(progress: StreamingQueryProgress) -> int:
    """Return what ``counted`` has counted; without it, Spark's own count."""
    found = progress.observedMetrics.get(_NAME)
    return progress.numInputRows if found is None else int(found["changes"])
