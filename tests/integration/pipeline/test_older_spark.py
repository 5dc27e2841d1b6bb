"""The source in Spark 4.0 and 4.1, which have no limits for streams in Python.

``.ci/nightly`` gets them: pip install --no-deps --target .venv/spark-4.0 'pyspark==4.0.*'
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, ended

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("line", ["4.0", "4.1"])
def test_an_older_spark_reads_batches_and_streams(line: str, tmp_path: Path) -> None:
    spark = ROOT / f".venv/spark-{line}"
    if not spark.exists():
        pytest.skip(f"Spark {line} is not there: see above")
    done = ended(
        *(sys.executable, "-m", "tests.support.older_spark_program", tmp_path),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{spark}:{ROOT}", "PYSPARK_PYTHON": sys.executable},
        patience=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("spark").startswith(line)
    assert found == {
        "batch": 150,
        "first": [150, 150],
        "second": [160, 160],
        "nothing new": [160, 160],
        "read": 160,
    }
