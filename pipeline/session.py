"""A Spark session, set up for what pipelines do.

On one machine the session is set up whole. On a cluster spark-submit has configured Spark,
and only what the source relies on is added.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from changefeed.pipeline.delta_jar import with_delta
from changefeed.pipeline.java import java_home
from changefeed.pipeline.source.spark import register
from changefeed.runtime.errors import UserError

_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
}
_LOCAL: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers make large buffers again and again: glibc is to keep up to 256 MB of them. Else it
    # gives each back, and the kernel clears every page that it takes again.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "268435456",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Renames on a local disk: for one query in each checkpoint directory, which is the rule.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_QUIET: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The way to the Java process of spark-submit, where that has started the program."""
_REMOTE: Final = "SPARK_REMOTE"
"""Names a server of Spark Connect to every program that uses Spark."""
_RAISED_TOO: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""What PySpark logs, with a stack of Java, before it raises the same."""
LOCAL_MASTER: Final = "local[2,4]"
"""Two cores, and four attempts for a task: plain ``local[2]`` never tries one again."""


@contextmanager
def spark_session(
    name: str, conf: Mapping[str, str] | None = None, *, master: str = LOCAL_MASTER
) -> Iterator[SparkSession]:
    """Start Spark, or join the session there is, with the source registered; stop it after.

    ``conf`` goes before what is set here. In a program that spark-submit has started, its
    line says where Spark runs, and not ``master``. Raise ``UserError`` if there is no
    Java, and for a server of Spark Connect: its JVM is out of reach.
    """
    if master.startswith("sc://") or _REMOTE in os.environ or is_remote_only():
        raise UserError(
            f"a pipeline starts Spark's Java process itself, and cannot over Spark Connect: "
            f"install pyspark, set master to {LOCAL_MASTER} or spark://HOST:PORT, and unset "
            f"{_REMOTE}. Or keep the tables from a session of your own, with "
            f"changefeed.pipeline.tables.queries.TableQueries"
        )
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    builder = SparkSession.Builder().appName(name)
    local: Mapping[str, str] = {}
    submitted = _SUBMITTED in os.environ
    if not submitted:
        builder = builder.master(master)
    if not submitted and master.startswith("local"):
        local = _LOCAL
        # Spark would take any python3 on the path, which has not our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_ALWAYS, **local, **with_delta(conf or {})}
    if local:
        settings[_JAVA_OPTIONS] = f"{_QUIET} {settings.get(_JAVA_OPTIONS, '')}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    heard = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if callable(heard) and heard not in (
        signal.default_int_handler,
        signal.getsignal(signal.SIGINT),
    ):  # Spark takes Ctrl-C for itself, and cancels what runs: not where somebody listens
        signal.signal(signal.SIGINT, heard)
    spark.sparkContext.setLogLevel("ERROR")
    for each in _RAISED_TOO:
        PySparkLogger.getLogger(each).disabled = True
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()
