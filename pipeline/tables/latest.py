"""The latest state by key and id.

Of each batch Spark keeps the newest change of each item, and these few are merged. A row
gives way only to a newer change: one with a greater (``generation``, ``sequence``), which
is the order of an item's changes even across ranges that end. A deleted item stays as a
row that says so, with its order: else a repeated older insert would bring it back to life.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from changefeed.pipeline.tables.merge import Merge

MERGE: Final = Merge(
    keys=("key", "id"),
    newer=(
        "s.generation > t.generation "
        "OR (s.generation = t.generation AND s.sequence > t.sequence)"
    ),
)


def newest(changes: DataFrame) -> DataFrame:
    """Return the newest change of each item, with ``deleted``."""
    rest = [x for x in changes.columns if x not in MERGE.keys]
    found = changes.groupBy(*MERGE.keys).agg(
        F.max_by(F.struct(*rest), F.struct("generation", "sequence")).alias("newest")
    )
    return found.select(*MERGE.keys, "newest.*").withColumn(
        "deleted", F.col("operation") == F.lit("delete")
    )
