"""Pipelines on a standalone Spark, by the recipe of docs/pipeline.md.

The driver and the executors are killed in the midst, the driver also exactly between the
commit of a table and Spark's own; in the end each change is in the tables once.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pyspark
import pytest

from changefeed.pipeline.source.planning import first_offset
from tests.support import wheels
from tests.support.delta_rows import rows_of
from tests.support.held_commits import APPENDED, MERGED, Hold, commits
from tests.support.pipeline_cosmos import ServedCosmos, served_cosmos
from tests.support.pipeline_feeds import a_log
from tests.support.processes import beside, until
from tests.support.spark_cluster import QUICK, SECONDS, SparkCluster, spark_cluster

SPARK: Final = f"""
[spark]
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.executor.extraJavaOptions" = "{QUICK}"
"spark.sql.shuffle.partitions" = "2"
"spark.ui.enabled" = "false"
"""
WRITES_DOWN: Final = """\
import os, sys, time
from pathlib import Path

import changefeed

PROGRAM = f"{changefeed.__file__} {__file__} {sys.executable}"


class Orders:
    async def open(self, context):
        self.name = f"{context.range.id}-{os.getpid()}"

    async def process(self, changes):
        time.sleep(0.05)
        with Path("OUT", self.name).open("a") as file:
            file.writelines(f"{x.sequence} {PROGRAM}\\n" for x in changes)
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark")) as made:
        yield made


def submitted(
    cluster: SparkCluster,
    cwd: Path,
    *command: str,
    shipped: Sequence[Path] = (),
    python: str | Path = sys.executable,
) -> Sequence[str | Path]:
    """Return the line that runs a command of a pipeline there, with packages of ours."""
    program = cwd / "program.py"
    program.write_text("from changefeed.cli.commands.pipeline import pipeline\n\npipeline()\n")
    packages = ["--py-files", ",".join(map(str, shipped))] if shipped else []
    conf = {
        "spark.pyspark.python": python,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executorEnv.PYTHONPATH": ":".join(map(str, shipped)),
    }
    return [
        Path(pyspark.__file__).parent / "bin/spark-submit",
        *(f"--master={cluster.master}", "--executor-memory=512m"),
        *(f"--conf={name}={value}" for name, value in conf.items()),
        *packages,
        program,
        *command,
        "--config=pipeline.toml",
    ]


def running(
    line: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a driver; it is killed with its processes at the end, if it has not ended."""
    return beside(*line, cwd=cwd, said=cwd / "said", env=env)


def kill_an_executor(cluster: SparkCluster, *, older: Sequence[int]) -> None:
    """Kill one that works, as soon as there is one. Those of a driver that was killed are
    ``older``, and live on for a while.
    """

    def killed() -> bool:
        for x in cluster.executors():
            if x not in older and cluster.has_worked(x):
                with suppress(ProcessLookupError):  # it has ended just now
                    os.kill(x, signal.SIGKILL)
                    return True
        return False

    until(killed, patience=SECONDS)


def batches(cwd: Path, table: str, folder: str) -> int:
    return len([*(cwd / "tables/_checkpoints" / table / folder).glob("[0-9]*")])


@pytest.fixture
def cosmos() -> Iterator[ServedCosmos]:
    with served_cosmos(ranges=2) as made:
        yield made


def test_executors_and_drivers_are_killed_and_tables_of_all_versions_are_exact(
    cluster: SparkCluster, cosmos: ServedCosmos, tmp_path: Path
) -> None:
    with cosmos.access("all-versions") as access:
        start = first_offset(access, "now").as_text()
    settings = {
        "feed": cosmos.address("all-versions"),
        "directory": str(tmp_path / "tables"),
        "start": start,
        "body_schema": "n INT",
        "max_changes": 60,
    }
    lines = [f"{name} = {json.dumps(x)}" for name, x in settings.items()]
    lines += ["[changes]", "interval = 0", "[latest]", "interval = 0", SPARK]
    (tmp_path / "pipeline.toml").write_text("\n".join(lines))
    runs = submitted(cluster, tmp_path, "run")
    once = submitted(cluster, tmp_path, "run", "--once")

    cosmos.put(100)
    tables = tmp_path / "tables"
    hold = Hold(home=tmp_path / "1", table=tables / "changes", how=APPENDED, count=3)
    killed_after_a_commit(hold, cluster, runs, tmp_path)
    cosmos.put(60, n=1)
    cosmos.split(cosmos.living()[0])
    for n in range(10):
        cosmos.remove(f"i{n}", f"k{n}")
    count = commits(tables / "latest") + 1
    hold = Hold(home=tmp_path / "2", table=tables / "latest", how=MERGED, count=count)
    killed_after_a_commit(hold, cluster, runs, tmp_path)
    cosmos.put(5, n=2)
    with running(once, tmp_path) as driver:
        assert driver.wait(SECONDS) == 0, (tmp_path / "said").read_text()[-5000:]

    changes = rows_of(tmp_path / "tables/changes")
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 175
    items = rows_of(tmp_path / "tables/latest")
    latest = {x["id"]: None if x["deleted"] else x["value"]["n"] for x in items}
    assert latest == {
        f"i{n}": 2 if n < 5 else None if n < 10 else int(n < 60) for n in range(100)
    }


def killed_after_a_commit(
    hold: Hold, cluster: SparkCluster, line: Sequence[str | Path], cwd: Path
) -> None:
    """Kill an executor under a pipeline, and then the driver in the moment after a commit."""
    said, table, older = cwd / "said", hold.table, cluster.executors()
    with running(line, cwd, hold.environment()) as driver:
        until(lambda: commits(table) >= hold.count - 1, driver, said, patience=SECONDS)
        kill_an_executor(cluster, older=older)
        until(hold.held, driver, said, patience=SECONDS)
        begun, done = (batches(cwd, table.name, x) for x in ("offsets", "commits"))
        assert begun == done + 1, "Spark knows of the batch that is in the table"
    hold.release()


def test_an_observer_runs_on_executors_with_the_code_of_a_wheel_and_of_py_files(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    """Both are shipped as zips, which a wheel is."""
    (tmp_path / "built").mkdir()
    wheel = wheels.ours(".whl", tmp_path / "built", "wheel")
    python = wheels.environment(tmp_path / "env") / "bin/python"
    ours = wheel.rename(tmp_path / "changefeed.zip")
    out = tmp_path / "out"
    out.mkdir()
    mine = tmp_path / "mine.zip"
    with ZipFile(mine, "w") as archive:
        archive.writestr("shipped.py", WRITES_DOWN.replace("OUT", str(out)))
    a_log(tmp_path / "log", {f"k{n}": 500 for n in range(20)}, parts=4)
    (tmp_path / "pipeline.toml").write_text(
        'feed = "eventlog:log"\ndirectory = "tables"\nmax_changes = 2000\n'
        "[changes]\nenabled = false\n[latest]\nenabled = false\n"
        f'[observer]\nname = "shipped:Orders"\n{SPARK}'
    )
    line = submitted(cluster, tmp_path, "run", shipped=[ours, mine], python=python)

    older, said = cluster.executors(), tmp_path / "said"
    env = {**wheels.alone(), "PYSPARK_DRIVER_PYTHON": str(python)}
    with running(line, tmp_path, env) as driver:
        until(lambda: [*out.iterdir()], driver, said, patience=SECONDS)
        kill_an_executor(cluster, older=older)
        until(lambda: seen(out) == 10_000, driver, said, patience=SECONDS)
    for file in out.iterdir():
        for written in file.read_text().splitlines():
            _, package, module, interpreter = written.split()
            assert package.endswith("changefeed.zip/changefeed/__init__.py")
            assert module.endswith("mine.zip/shipped.py")
            assert interpreter == str(python)
    processes = {x.name.rpartition("-")[2] for x in out.iterdir()}
    assert len(processes) > 1, "the one that was killed, and others"


def seen(out: Path) -> int:
    """Return how many changes were written down, each counted once."""
    found = {
        (file.name.rpartition("-")[0], line.split()[0])
        for file in out.iterdir()
        for line in file.read_text().rpartition("\n")[0].splitlines()
    }
    return len(found)
