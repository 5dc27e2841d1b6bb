"""The latest state by key and id.

Of each batch Spark keeps the newest change of each item, and these few are merged. A row
gives way only to a newer change: one with a greater (``generation``, ``sequence``), which
is the order of an item's changes even across ranges that end. A deleted item stays as a
row that says so, with its order: else a repeated older insert would bring it back to life.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from .merging import compact, merge

KEYS: Final = ("key", "id")
_NEWER: Final = (
    "s.generation > t.generation OR (s.generation = t.generation AND s.sequence > t.sequence)"
)


def newest(changes: DataFrame) -> DataFrame:
    """Return the newest change of each item, with ``deleted``."""
    rest = [x for x in changes.columns if x not in KEYS]
    found = changes.groupBy(*KEYS).agg(
        F.max_by(F.struct(*rest), F.struct("generation", "sequence")).alias("newest")
    )
    return found.select(*KEYS, "newest.*").withColumn(
        "deleted", F.col("operation") == F.lit("delete")
    )


class LatestTable:
    """Merges the batches of one query into a table."""

    def __init__(self, uri: str, *, compact_every: int) -> None:
        self._uri = uri
        self._compact_every = compact_every

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = newest(batch).toArrow()
        merge(self._uri, rows, keys=KEYS, newer=_NEWER)
        if rows.num_rows and number % self._compact_every == self._compact_every - 1:
            compact(self._uri)
