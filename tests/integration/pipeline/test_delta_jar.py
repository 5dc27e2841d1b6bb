"""Delta in Spark itself, where its jars can be had: the same tables as without.

The jars are found under the folder ``TEST_DELTA_JARS``, such as that of Maven:

    mvn dependency:get -Dartifact=io.delta:delta-spark_4.2_2.13:4.4.0
    TEST_DELTA_JARS=~/.m2/repository/io/delta pytest tests/integration/pipeline

Jars are given when a JVM starts, so this runs in a process of its own.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.delta_rows import read_by_duckdb, rows_of
from tests.support.pipeline_delta import DIRECTORIES, NAMES
from tests.support.processes import PATIENCE, ended

FOLDER = os.environ.get("TEST_DELTA_JARS")


def jars(folder: str) -> Sequence[str]:
    names = ("delta-spark_4.2_2.13-*.jar", "delta-storage-*.jar")
    found = [sorted(map(str, Path(folder).rglob(name)))[-1:] for name in names]
    assert all(found), f"TEST_DELTA_JARS={folder} lacks one of {', '.join(names)}"
    return [x for one in found for x in one]


def commits(directory: Path, name: str, operation: str) -> Mapping[str, int]:
    """Count the commits of a table that do this, by what made them."""
    found = DeltaTable(str(directory / name)).history()
    made = [str(x.get("engineInfo", "")) for x in found if x["operation"] == operation]
    by_spark = sum("Apache-Spark" in x for x in made)
    return {"spark": by_spark, "deltalake": len(made) - by_spark}


@pytest.mark.skipif(
    FOLDER is None,
    reason="Delta's jars are not named by TEST_DELTA_JARS: .ci/nightly gets them",
)
def test_spark_with_delta_writes_the_tables_that_it_writes_without(tmp_path: Path) -> None:
    assert FOLDER is not None
    program = (sys.executable, "-m", "tests.support.pipeline_delta", tmp_path)
    root = Path(__file__).parents[3]
    said = ended(*program, cwd=root, stdin=json.dumps(jars(FOLDER)), patience=PATIENCE)
    assert said.returncode == 0, said.stderr[-3000:]
    for directory, name in product(DIRECTORIES, NAMES):
        found = rows_of(tmp_path / directory / name)
        by_spark = pq.read_table(tmp_path / "read" / directory / name).to_pylist()
        assert sorted(by_spark, key=repr) == found
        assert read_by_duckdb(tmp_path / directory / name) == found
    for name in NAMES:
        with_jar, without = (rows_of(tmp_path / x / name) for x in ("spark", "here"))
        assert with_jar == without
        assert len(with_jar) > 1
        assert commits(tmp_path / "here", name, "MERGE")["spark"] == 0
        merged = commits(tmp_path / "spark", name, "MERGE")
        assert merged["spark"] > merged["deltalake"] == 1  # the round between
        # Of what merges have left in one file OPTIMIZE says nothing.
        assert commits(tmp_path / "spark", name, "VACUUM END") == {"spark": 1, "deltalake": 0}
        assert len(DeltaTable(str(tmp_path / "spark" / name)).file_uris()) == 1
