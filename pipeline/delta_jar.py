"""The Spark settings that enable Delta in Spark itself, where its jar is named."""

from collections.abc import Mapping
from typing import Final

DELTA: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_JAR: Final = "delta-spark"
_JARS: Final = ("spark.jars", "spark.jars.packages")


def with_delta(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Add what Delta needs, where the settings of a session name its jar. What they say of it
    themselves goes before.
    """
    return {**DELTA, **conf} if any(_JAR in conf.get(x, "") for x in _JARS) else conf
