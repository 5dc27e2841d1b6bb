"""The line that submits a pipeline, and what it needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.errors import PipelineRefused
from pipeline.settings import PipelineSettings
from pipeline.submitting import command

SETTINGS = PipelineSettings(
    feed="eventlog:log", directory="tables", spark={"spark.driver.memory": "4g"}
)


def line(tmp_path: Path, *further: str, what: str = "run") -> list[str]:
    return command(
        SETTINGS,
        tmp_path / "pipeline.toml",
        directory=tmp_path / "into",
        master="spark://there",
        what=what,
        python="./env/bin/python",
        further=further,
    )


def test_the_line_says_where_with_what_and_with_which_settings(tmp_path: Path) -> None:
    words = line(tmp_path, "--name=mine", "--py-files", "a.zip", "--conf=x.y=z")
    assert words[0].endswith("spark-submit")
    assert words[1:] == [
        "--master=spark://there",
        "--conf=spark.pyspark.python=./env/bin/python",
        "--conf=spark.driver.memory=4g",
        f"--py-files={tmp_path}/into/changefeed.zip,a.zip",
        "--name=mine",
        "--conf=x.y=z",
        f"{tmp_path}/into/changefeed_pipeline.py",
        "run",
        f"--config={tmp_path}/pipeline.toml",
        "--submitted",
    ]


def test_the_archive_is_all_of_ours_that_the_program_imports(tmp_path: Path) -> None:
    line(tmp_path)
    archive = tmp_path / "into/changefeed.zip"
    with zipfile.ZipFile(archive) as found:
        assert {x.partition("/")[0] for x in found.namelist()} == {
            "feeds",
            "leases",
            "observers",
            "pipeline",
            "process",
        }
    alone = "import sys; sys.path.insert(0, sys.argv[1]); import pipeline.cli as x"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{alone}; print(x.__file__)", str(archive)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(str(archive))


def test_what_cannot_be_submitted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineRefused, match="'status' cannot be submitted; there are: run"):
        line(tmp_path, what="status")
