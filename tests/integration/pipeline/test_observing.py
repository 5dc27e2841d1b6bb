"""The observers of hosts, run by Spark."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.keeping import Observing
from pipeline.running import keep_running
from tests.support.pipeline_feeds import a_log, append_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("default"),  # pyspark's own are not ours to mend
]


def test_an_observer_gets_each_range_in_order_and_a_later_run_only_what_is_new(
    spark: "SparkSession", tmp_path: Path
) -> None:
    wanted = Observing(
        feed=a_log(tmp_path / "log", {"a": 1500, "b": 5}, parts=2),
        observer="jsonl",
        options={"path": str(tmp_path / "out-{range}.jsonl")},
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
    )
    for total in (1505, 1508):
        keep_running({"observer": lambda: wanted.started(spark)}, threading.Event())
        seen: list[tuple[str, int]] = []
        for file in sorted(tmp_path.glob("out-*.jsonl")):
            lines = [json.loads(x) for x in file.read_text().splitlines()]
            seen += [(x["range"], x["sequence"]) for x in lines]
        assert len(seen) == len(set(seen)) == total
        assert seen == sorted(seen)
        append_to(tmp_path / "log", {"b": 3})
