"""Queries of Spark that are run to their end, also on a busy machine."""

from pathlib import Path
from typing import TYPE_CHECKING

from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.spark_errors import try_again
from tests.support.processes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from changefeed.pipeline.settings import PipelineSettings


def run_to_end(start: "Callable[[], StreamingQuery | None]") -> "StreamingQuery | None":
    """Return the query that has ended; it is started again where Spark has lost a Python.

    It has ten seconds to start, which no setting changes. A pipeline tries again, too.
    """

    def run() -> "StreamingQuery | None":
        query = start()
        assert query is None or query.awaitTermination(PATIENCE)
        return query

    return try_again(run, Stopping())


def drain(changes: "DataFrame", rows: str, checkpoint: str) -> "StreamingQuery":
    """Write what is there now as Parquet, in as many batches as it takes."""
    writer = changes.writeStream.format("parquet").trigger(availableNow=True)
    placed = writer.option("path", rows).option("checkpointLocation", checkpoint)
    query = run_to_end(placed.start)
    assert query is not None
    return query


def forget_the_last_commit(wanted: "PipelineSettings", name: str) -> None:
    """Leave Spark as a kill does that comes when a batch is in the table already."""
    commits = Path(wanted.checkpoint(name)) / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda x: int(x.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
