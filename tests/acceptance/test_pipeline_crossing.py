"""A feed that is read by hosts and by Spark: one after the other, and side by side."""

import asyncio
import json
import os
import signal
from pathlib import Path

from changefeed.feeds.feed import RangeId
from tests.support.commands import QUICK, invoked, left_running
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.processes import PATIENCE, until
from tests.support.succession import replace_partitions

FEED = "--feed=eventlog:log"
WRITE_DOWN = ("--observer=jsonl", "--option=path=out/{range}.jsonl")
JVM = '--set=spark."spark.driver.extraJavaOptions"=-XX:TieredStopAtLevel=1'
SPARK = (
    "pipeline",
    "run",
    FEED,
    *WRITE_DOWN,
    "--directory=spark",
    "--set=changes.enabled=false",
    "--set=latest.enabled=false",
    "--set=start=file:positions.json",
    "--set=max_changes=200",
    "--set=stop_timeout=100",
    JVM,
)
KEYS = [f"k{n}" for n in range(10)]


def test_positions_cross_from_hosts_to_spark_and_back(tmp_path: Path) -> None:
    a_log(tmp_path / "log", dict.fromkeys(KEYS, 20), parts=2)
    stopped_after(200, tmp_path, "run", FEED, "--leases=sqlite:leases.db", *WRITE_DOWN, *QUICK)
    halves = [(0, 0, 127), (0, 128, 255)]
    asyncio.run(replace_partitions(tmp_path / "log", [RangeId("e1.p01.v00-ff")], halves))
    append_to(tmp_path / "log", dict.fromkeys(KEYS, 2000))
    stopped = invoked(
        *("positions", "export", "positions.json", FEED, "--leases=sqlite:leases.db"),
        cwd=tmp_path,
    )
    assert stopped.returncode == 0, stopped.stderr
    stopped_after(1000, tmp_path, *SPARK)
    crossed = len(delivered(tmp_path))
    assert 1000 <= crossed < 20_200, "it was to be stopped in the midst"

    import_ = ("positions", "import", "checkpoint:spark/_checkpoints/observer", FEED)
    shown = invoked(*import_, "--leases=sqlite:new.db", "--dry-run", cwd=tmp_path)
    assert "created" in shown.stdout, shown.stderr
    refused = invoked(*import_, "--leases=sqlite:leases.db", cwd=tmp_path)
    assert (refused.returncode, "nothing was changed" in refused.stdout) == (1, True)
    done = invoked(*import_, "--leases=sqlite:new.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    back = invoked("positions", "export", "-", FEED, "--leases=sqlite:new.db", cwd=tmp_path)
    epochs = {x["epoch"] for x in json.loads(back.stdout)["positions"]}
    batches = [*(tmp_path / "spark/_checkpoints/observer/commits").glob("[0-9]*")]
    assert epochs == {1 + len(batches)}  # the hosts' one, and one for each batch

    stopped_after(20_200, tmp_path, "run", FEED, "--leases=sqlite:new.db", *WRITE_DOWN, *QUICK)
    seen = delivered(tmp_path)
    assert len(seen) == len(set(seen)) == 20_200
    for file in (tmp_path / "out").iterdir():
        sequences = [json.loads(x)["sequence"] for x in file.read_text().splitlines()]
        assert sequences == list(range(1, len(sequences) + 1)), file.name


def delivered(cwd: Path) -> list[tuple[str, int]]:
    """Return what names the changes that were written down, complete lines only."""
    lines = [
        line
        for file in (cwd / "out").glob("*.jsonl")
        for line in file.read_text().rpartition("\n")[0].splitlines()
    ]
    return [(x["range"], x["sequence"]) for x in map(json.loads, lines)]


def stopped_after(count: int, cwd: Path, *arguments: str) -> None:
    """Run a command until so many changes are delivered, and stop it as Ctrl-C does."""
    with left_running(*arguments, cwd=cwd) as process:
        until(lambda: len(delivered(cwd)) >= count, process, cwd / "said")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 0, (cwd / "said").read_text()
