"""The line that submits a pipeline, and what it needs."""

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from changefeed.pipeline.delta_jar import DELTA
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.submit import command

SETTINGS = PipelineSettings(
    feed="eventlog:log",
    directory="tables",
    spark={"spark.driver.memory": "4g", "spark.executorEnv.PYTHONPATH": "/mine"},
)


def line(
    tmp_path: Path, *further: str, what: str = "run", start: Sequence[str] = ()
) -> list[str]:
    return command(
        SETTINGS,
        tmp_path / "pipeline.toml",
        directory=tmp_path / "into",
        master="spark://there",
        what=what,
        python="./env/bin/python",
        further=further,
        start=start,
    )


def test_the_line_says_where_with_what_and_with_which_settings(tmp_path: Path) -> None:
    packages = "--packages=io.delta:delta-spark_4.2_2.13:4.4.0"
    further, start = ("--name=mine", "--py-files", "a.zip", packages), ("--start=now",)
    words = line(tmp_path, *further, start=start)
    assert words[0].endswith("spark-submit")
    delta = {f"--conf={name}={value}" for name, value in DELTA.items()}
    assert delta < set(words), "it is used where its jar is"
    assert [x for x in words[1:] if x not in delta] == [
        "--master=spark://there",
        "--conf=spark.pyspark.python=./env/bin/python",
        "--conf=spark.driver.memory=4g",
        f"--conf=spark.executorEnv.PYTHONPATH={tmp_path}/into/changefeed.zip:/mine",
        f"--py-files={tmp_path}/into/changefeed.zip,a.zip",
        "--name=mine",
        packages,
        f"{tmp_path}/into/changefeed_pipeline.py",
        "run",
        f"--config={tmp_path}/pipeline.toml",
        "--start=now",
        "--submitted",
    ]


def test_the_archive_is_all_of_ours_that_the_program_imports(tmp_path: Path) -> None:
    line(tmp_path)
    archive = tmp_path / "into/changefeed.zip"
    with zipfile.ZipFile(archive) as found:
        assert {x.partition("/")[0] for x in found.namelist()} == {"changefeed"}
    alone = "import sys; sys.path.insert(0, sys.argv[1]); import changefeed.cli.pipeline as x"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{alone}; print(x.__file__)", str(archive)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(str(archive))


def test_submit_refuses_programs_it_cannot_submit(tmp_path: Path) -> None:
    with pytest.raises(PipelineRefused, match="'status'"):
        line(tmp_path, what="status")
