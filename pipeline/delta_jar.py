"""What Spark has to be told to use Delta itself, where its jar is named."""

from collections.abc import Mapping
from typing import Final

EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
DELTA: Final[Mapping[str, str]] = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_JAR: Final = "delta-spark"
_JARS: Final = ("spark.jars", "spark.jars.packages")


def with_delta(conf: Mapping[str, str], *, named: bool = False) -> Mapping[str, str]:
    """Add what Delta needs, where the settings of a session name its jar (or ``named``).

    What they say of it themselves goes before.
    """
    if named or any(_JAR in conf.get(x, "") for x in _JARS):
        return {**DELTA, **conf}
    return conf


def names_delta(arguments: str) -> bool:
    """Whether a command line of ``spark-submit`` brings Delta's jar along."""
    return _JAR in arguments
