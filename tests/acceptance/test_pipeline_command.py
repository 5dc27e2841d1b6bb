"""The pipeline as users run it: processes that are stopped, killed and asked."""

import asyncio
import json
import re
import signal
from pathlib import Path
from random import Random
from urllib.request import urlopen

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.checkpoint_dir import committed, is_owned, owned
from changefeed.runtime.errors import UserError
from tests.support.commands import changefeed, left_running
from tests.support.delta_rows import rows_of
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.processes import PATIENCE, until
from tests.support.succession import replace_partitions

RUN = ("pipeline", "run", "--config=pipeline.toml")
SETTINGS = """\
feed = "eventlog:log"
directory = "tables"
max_changes = 150
stop_timeout = 100
[changes]
interval = 0
[latest]
interval = 0
[spark]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""


def batches(cwd: Path, table: str, folder: str) -> int:
    return len(list((cwd / "tables/_checkpoints" / table / folder).glob("[0-9]*")))


def killed_between_the_commits(count: int, cwd: Path) -> None:
    """Kill a pipeline when a batch is in the table, which Spark does not know yet."""
    with left_running(*RUN, cwd=cwd) as process:
        until(
            lambda: commits_of_the_table(cwd) > count, process, cwd / "said", patience=PATIENCE
        )  # the first makes it


def commits_of_the_table(cwd: Path) -> int:
    return len(list((cwd / "tables/changes/_delta_log").glob("[0-9]*.json")))


def test_killed_at_any_moment_each_change_is_in_the_tables_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    a_log(tmp_path / "log", {f"k{n}": 100 for n in range(10)}, parts=2)
    killed_between_the_commits(Random().randint(1, 4), tmp_path)  # latest: at any moment
    append_to(tmp_path / "log", {"k3": 50})
    old = [RangeId(f"e1.p{n:02}.v00-ff") for n in range(1, 3)]
    halves = [(n, low, low + 127) for n in range(2) for low in (0, 128)]
    asyncio.run(replace_partitions(tmp_path / "log", old, halves))
    append_to(tmp_path / "log", {"k3": 50})
    done = changefeed(*RUN, "--once", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    changes = rows_of(tmp_path / "tables/changes")
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 1100
    latest = {x["key"]: x["body"] for x in rows_of(tmp_path / "tables/latest")}
    assert latest == {f"k{n}": '{"n": 99}' if n != 3 else '{"n": 49}' for n in range(10)}


def test_the_environment_says_what_to_keep_and_where_metrics_are_pushed(
    tmp_path: Path,
) -> None:
    a_log(tmp_path / "log", {"k": 100}, parts=1)
    settings = {"FEED": "eventlog:log", "DIRECTORY": "tables", "LATEST__ENABLED": "false"}
    env = {
        **{f"CHANGEFEED_PIPELINE__{name}": value for name, value in settings.items()},
        "OTEL_METRICS_EXPORTER": "console",
    }
    done = changefeed("pipeline", "run", "--once", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "tables/changes")) == 100
    assert not (tmp_path / "tables/latest").exists()
    names = {"changefeed.pipeline.changes", "changefeed.pipeline.lag", "changefeed-pipeline"}
    assert {x for x in names if f'"{x}"' in done.stdout} == names, done.stdout


def test_told_to_stop_a_pipeline_ends_its_batches_and_says_how_far_it_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    total = 40_000  # more than it gets done meanwhile
    a_log(tmp_path / "log", {f"k{n}": total // 10 for n in range(10)}, parts=2)
    checkpoint = str(tmp_path / "tables/_checkpoints/changes")
    assert (committed(checkpoint), is_owned(checkpoint)) == (None, False)
    with left_running(*RUN, "--set=web.port=0", cwd=tmp_path) as process:
        until(lambda: in_a_batch(tmp_path, 2), process, tmp_path / "said", patience=PATIENCE)
        with pytest.raises(UserError, match="stop it first"), owned(checkpoint):
            pass
        until(
            lambda: metric(served(tmp_path), "batches_total") > 0,
            process,
            tmp_path / "said",
            patience=PATIENCE,
        )
        assert_metrics_are_right(served(tmp_path))
        until(lambda: in_a_batch(tmp_path, 3), process, tmp_path / "said", patience=PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, (tmp_path / "said").read_text()
    said = (tmp_path / "said").read_text()
    assert "pipeline.stopped" in said
    assert "broken off" not in said
    done = changefeed("pipeline", "status", RUN[-1], "--json", cwd=tmp_path)
    after = json.loads(done.stdout)["tables"]
    assert [(x["table"], x["running"]) for x in after] == [
        ("changes", False),
        ("latest", False),
    ]
    for x in after:
        last = batches(tmp_path, x["table"], "commits")
        assert batches(tmp_path, x["table"], "offsets") == last == x["batch"] + 1
        assert x["lag"] == sum(y["lag"] for y in x["ranges"]) == total - 150 * last
    assert len(rows_of(tmp_path / "tables/changes")) == total - after[0]["lag"]


def in_a_batch(cwd: Path, least: int) -> bool:
    """Say whether a batch of the table of changes is under way, and not one of the first."""
    begun = batches(cwd, "changes", "offsets")
    return begun > least and batches(cwd, "changes", "commits") < begun


def served(cwd: Path, path: str = "metrics") -> str:
    lines = (cwd / "said").read_text().splitlines()
    logged = [json.loads(x) for x in lines if x.startswith("{")]
    (address,) = [x["address"] for x in logged if x["event"] == "web.listening"]
    text: str = urlopen(f"{address}/{path}").read().decode()
    return text


def assert_metrics_are_right(text: str) -> None:
    assert metric(text, "changes_total") == 150 * metric(text, "batches_total")
    assert metric(text, "batch_duration_seconds_sum") > 0
    lag = re.compile(r'^changefeed_pipeline_lag{.*range="(.+?)".*"changes"} ', re.MULTILINE)
    assert sorted(lag.findall(text)) == ["e1.p01.v00-ff", "e1.p02.v00-ff"]


def metric(text: str, name: str) -> float:
    """Return what is counted of the table of changes."""
    found = re.search(rf'^changefeed_pipeline_{name}{{.*"changes"}} (.+)$', text, re.MULTILINE)
    return float(found[1]) if found is not None else 0.0
