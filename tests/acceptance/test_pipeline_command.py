"""The pipeline as users run it: processes that are stopped, killed and asked."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

from feeds.eventlog.succession import replace_partitions
from feeds.feed import RangeId
from tests.support.pipeline_feeds import a_log, append_to

pytestmark = pytest.mark.real_time

PATIENCE = 120
COMMAND = (sys.executable, "-P", "-m", "changefeed", "pipeline")
PLACES = ("--feed=eventlog:log", "--directory=tables")
SETTINGS = """\
feed = "eventlog:log"
directory = "tables"
max_changes = 150
[changes]
interval = 0
[latest]
interval = 0
[spark]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""


def pipeline(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def started(cwd: Path) -> subprocess.Popen[bytes]:
    """Start a pipeline in a session of its own, so that its JVM can be killed with it."""
    with (cwd / "said").open("ab") as said:
        return subprocess.Popen(
            [*COMMAND, "run", "--config=pipeline.toml"],
            cwd=cwd,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def until(state: Callable[[], bool], process: subprocess.Popen[bytes], cwd: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not state():
        assert process.poll() is None, (cwd / "said").read_text()
        assert time.monotonic() < deadline, (cwd / "said").read_text()
        time.sleep(0.02)


def batches(cwd: Path, table: str, folder: str) -> int:
    return len(list((cwd / "tables/_checkpoints" / table / folder).glob("[0-9]*")))


def killed_after(count: int, cwd: Path) -> None:
    """Run a pipeline until it has begun so many batches in all, and kill it at once."""
    process = started(cwd)
    until(lambda: batches(cwd, "changes", "offsets") >= count, process, cwd)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def rows(cwd: Path, table: str) -> list[dict[str, Any]]:
    found = deltalake.DeltaTable(str(cwd / "tables" / table)).to_pyarrow_table()
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


def test_killed_at_any_moment_each_change_is_in_the_tables_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    a_log(tmp_path / "log", {f"k{n}": 100 for n in range(10)}, parts=2)
    killed_after(2, tmp_path)
    append_to(tmp_path / "log", {"k3": 50})
    old = [RangeId(f"e1.p{n:02}.v00-ff") for n in range(2)]
    halves = [(n, low, low + 127) for n in range(2) for low in (0, 128)]
    asyncio.run(replace_partitions(tmp_path / "log", old, halves))
    killed_after(5, tmp_path)
    append_to(tmp_path / "log", {"k3": 50})
    done = pipeline("once", "--config=pipeline.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    changes = rows(tmp_path, "changes")
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 1100
    latest = {x["key"]: x["body"] for x in rows(tmp_path, "latest")}
    assert latest == {f"k{n}": '{"n": 99}' if n != 3 else '{"n": 49}' for n in range(10)}


def test_a_pipeline_stops_when_told_and_says_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    a_log(tmp_path / "log", {"a": 5}, parts=2)
    before = pipeline("status", "--config=pipeline.toml", "--json", cwd=tmp_path)
    assert [x["batch"] for x in json.loads(before.stdout)] == [None, None]
    process = started(tmp_path)
    until(
        lambda: all(batches(tmp_path, x, "commits") for x in ("changes", "latest")),
        process,
        tmp_path,
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, (tmp_path / "said").read_text()
    append_to(tmp_path / "log", {"a": 7})
    after = pipeline("status", "--config=pipeline.toml", "--json", cwd=tmp_path)
    assert json.loads(after.stdout) == [
        {"table": name, "batch": 0, "ranges": 2, "lag": 7} for name in ("changes", "latest")
    ]
    assert "changes" in pipeline("status", *PLACES, cwd=tmp_path).stdout


def test_what_a_person_has_to_change_is_said_before_spark_is_started(tmp_path: Path) -> None:
    for arguments, advice in (
        (("once", *PLACES), "make one with: changefeed produce"),
        (("once", "--feed=eventlog:log"), "directory: Field required"),
        (("status", "--config=none.toml"), "cannot be read"),
    ):
        done = pipeline(*arguments, cwd=tmp_path)
        assert (done.returncode, advice in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_a_pipeline_is_submitted_with_all_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    submitted = ("submit", "--config=pipeline.toml", "--master=local[1]", "--once")
    shown = pipeline(*submitted, "--show", "--name=x", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    words = shown.stdout.split()
    assert words[0].endswith("spark-submit")
    assert words[-3:] == ["once", f"--config={tmp_path / 'pipeline.toml'}", "--submitted"]
    assert "--name=x" in words
    a_log(tmp_path / "log", {"a": 5}, parts=2)
    done = pipeline(*submitted, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(rows(tmp_path, "changes")) == 5
