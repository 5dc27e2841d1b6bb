"""How long Spark takes to read rows into its noop sink, and how much CPU."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE: Final = 600


def seconds_of(rows: "DataFrame") -> float:
    """Read a batch."""
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def seconds_of_batches(rows: "DataFrame", checkpoint: Path) -> Sequence[float]:
    """Read what a stream has now; return the seconds of each batch that had rows, as Spark
    times it: from planning to its commit, without the start of the query.
    """
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    return [x.batchDuration / 1000 for x in ended(query).recentProgress if x.numInputRows]


def ended(query: "StreamingQuery") -> "StreamingQuery":
    """Wait for the end of a query."""
    assert query.awaitTermination(_PATIENCE), f"{query.name} takes too long"
    return query


def cpu_of(spark: "SparkSession") -> float:
    """Return the seconds of CPU that Spark here and its Python processes have used."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing else knows it
    root = gateway.proc.pid
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(place.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))  # and of its children that have ended
    found, left = 0, [root]
    while left:
        pid = left.pop()
        found += used.get(pid, 0)
        left += children.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")
