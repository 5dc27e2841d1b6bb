"""The sources where Spark is another: 4.0 and 4.1, which have no limits for streams in Python,
and a server of Spark Connect, of which this side has ``pyspark-client`` alone.

``.ci/nightly`` gets them: pip install --no-deps --target .venv/spark-4.0 'pyspark==4.0.*'
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import PATIENCE, beside, ended, until

ROOT = Path(__file__).parents[3]
READ = {
    "batch": 150,
    "first": [150, 150],
    "second": [160, 160],
    "nothing new": [160, 160],
    "read": 160,
    "items": [60, 10, 2, 7],
}


CONNECT = ROOT / ".venv/spark-connect"
SUM, LAST = sum(range(100)) + sum(range(50)), 1000
KEPT = {
    "changes": [152, 152],
    "latest": {"a": [LAST, False], "b": [None, True]},
    "daily": [152, SUM + LAST],
}


def run_with(
    spark: Path, program: str, *arguments: str | Path
) -> tuple[str, dict[str, object]]:
    """Run a program with this Spark; return its version, and what was found."""
    if not spark.exists():
        pytest.skip(f"{spark.name} is not there: see .ci/nightly")
    done = ended(
        *(sys.executable, "-m", f"tests.support.{program}", *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{spark}:{ROOT}", "PYSPARK_PYTHON": sys.executable},
        patience=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return found.pop("spark"), found


@pytest.mark.parametrize("line", ["4.0", "4.1"])
def test_an_older_spark_reads_batches_and_streams(line: str, tmp_path: Path) -> None:
    version, found = run_with(ROOT / f".venv/spark-{line}", "source_program", tmp_path)
    assert version.startswith(line)
    assert found == READ


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect, with a Spark of its own."""
    spec, port, said = find_spec("pyspark"), free_port(), tmp_path / "server"
    assert spec is not None
    assert spec.origin is not None
    server = (
        Path(spec.origin).parent / "bin/spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    )
    # Its Python needs gRPC for foreachBatch, from where the client has it. Its own pyspark goes
    # before that of the client: Spark puts it first.
    path = f"{ROOT}:{CONNECT}"
    environ = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    with beside(*server, cwd=tmp_path, said=said, env=environ) as process:
        until(lambda: answers(port), process, said)
        yield f"sc://127.0.0.1:{port}"
    assert not (CONNECT / "pyspark/jars").exists(), "the client has a JVM"


def test_a_client_of_spark_connect_reads_batches_and_streams(
    remote: str, tmp_path: Path
) -> None:
    _, found = run_with(CONNECT, "source_program", tmp_path, remote)
    assert found == READ


def test_a_client_of_spark_connect_fills_and_keeps_tables(remote: str, tmp_path: Path) -> None:
    _, found = run_with(CONNECT, "tables_program", tmp_path, remote)
    assert found == {
        "filled": {
            "changes": [150, 150],
            "latest": {"a": [99, False], "b": [49, False]},
            "daily": [0, 0],
        },
        "kept": KEPT,
        "repeated": KEPT,
    }
