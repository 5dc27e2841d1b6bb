"""One Spark session for all tests of the pipeline, and a Cosmos DB for each that asks."""

import logging
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from changefeed.pipeline.session import spark_session
from tests.support.pipeline_cosmos import ServedCosmos, served_cosmos


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    logging.getLogger("py4j").setLevel(logging.WARNING)  # else it logs when all is closed
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    with spark_session("tests", quick) as session:
        yield session


@pytest.fixture
def cosmos() -> Iterator[ServedCosmos]:
    with served_cosmos() as made:
        yield made
