"""A table that is filled from segments, by processes that are killed exactly at the steps."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import deltalake
import pytest

from changefeed.feeds.eventlog import EventLogWriter, SealPolicy
from tests.support.held_commits import APPENDED, Hold, commits
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.processes import beside, until

pytestmark = pytest.mark.real_time

PATIENCE = 300
ONCE = (sys.executable, "-P", "-m", "changefeed", "pipeline", "once", "--config=pipeline.toml")
SETTINGS = """\
feed = "eventlog:log"
directory = "tables"
max_changes = 8000
[latest]
enabled = false
[spark]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""


async def seal(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        await writer.seal(SealPolicy(everything=True))


def killed_when_held(cwd: Path, number: int, *, count: int, early: bool) -> None:
    """Run ``once`` until it is held at a commit of the table; then kill it with its Spark."""
    table = cwd / "tables/changes"
    home = cwd / f"hold-{number}"
    hold = Hold(home=home, table=table, how=APPENDED, count=count, early=early)
    with beside(*ONCE, cwd=cwd, said=cwd / "said", env=hold.environment()) as process:
        until(hold.held, process, cwd / "said", patience=PATIENCE)
    hold.release()
    assert commits(table) == count - early
    begun, done = (batches(cwd, x) for x in ("offsets", "commits"))
    assert begun == done + 1, "Spark knows of the batch"


def batches(cwd: Path, folder: str) -> int:
    return len([*(cwd / "tables/_checkpoints/changes" / folder).glob("[0-9]*")])


def filled(cwd: Path) -> list[int]:
    """Return how many changes waited for each fill there was."""
    lines = [x for x in (cwd / "said").read_text().splitlines() if x.startswith("{")]
    events: list[dict[str, Any]] = [json.loads(x) for x in lines]
    return [x["changes"] for x in events if x["event"] == "table.filling"]


def test_a_fill_that_is_killed_before_and_after_commits_and_at_its_border_is_exact(
    tmp_path: Path,
) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    a_log(tmp_path / "log", {f"k{n}": 500 for n in range(60)}, parts=2)
    asyncio.run(seal(tmp_path / "log"))
    append_to(tmp_path / "log", {"k0": 40})
    killed_when_held(tmp_path, 1, count=3, early=True)  # the plan is logged, nothing more
    killed_when_held(tmp_path, 2, count=3, early=False)  # it is in the table, in Spark not
    assert filled(tmp_path) == [30_000, 22_000], "the second was gone on with as a fill"
    killed_when_held(tmp_path, 3, count=5, early=False)  # the last one before the border
    append_to(tmp_path / "log", {"k1": 10})
    asyncio.run(seal(tmp_path / "log"))
    with beside(*ONCE, cwd=tmp_path, said=tmp_path / "said") as process:
        assert process.wait(PATIENCE) == 0, (tmp_path / "said").read_text()
    assert filled(tmp_path)[2:] == [22_000], "what little was left came through the source"
    table = deltalake.DeltaTable(str(tmp_path / "tables/changes"))
    changes: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 30_050
    last = {x["range"]: 0 for x in changes}
    for x in changes:
        last[x["range"]] = max(last[x["range"]], x["sequence"])
    assert sum(last.values()) == 30_050, "sequences are dense, so none is missing"
