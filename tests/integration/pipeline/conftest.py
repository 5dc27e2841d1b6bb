"""One Spark session for all tests of the pipeline."""

# mypy: disable-error-code="import-not-found"
# pyspark comes with an extra, and mypy runs without it as well

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark", reason="pyspark comes with the extra 'spark'")
    from pipeline.session import spark_session  # noqa: PLC0415 - it imports pyspark

    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    with spark_session("tests", quick) as session:
        yield session
