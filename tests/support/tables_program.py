"""A program that keeps tables of an event log through a server of Spark Connect, with whatever
Spark is first on the path of imports.

``python -m tests.support.tables_program FOLDER REMOTE`` prints what each step has left in the
tables, as one JSON object. The tables are filled from segments, kept through the source, and
kept again where Spark has forgotten the last batch of each.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from pyspark import __version__

from changefeed.feeds.feed import Operation
from changefeed.log.directory.writer import compact_log
from changefeed.log.records import Record
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.tables.queries import TableQueries
from tests.support.delta_rows import rows_of
from tests.support.pipeline_feeds import a_log, append_records
from tests.support.source_program import session
from tests.support.spark_queries import forget_the_last_commit, run_to_end

_DAILY = """
SELECT window.start AS window_start, count(*) AS changes, sum(value.n) AS total
FROM changes
GROUP BY window(committed_at, '1 day')
"""


def a_pipeline(folder: Path) -> PipelineSettings:
    """Return the settings of tables over a log, 150 changes of which are in segments."""
    feed = a_log(folder / "log", {"a": 100, "b": 50}, parts=2)
    with patch("changefeed.log.maintenance.run_maker.LARGE", 1):
        asyncio.run(compact_log(folder / "log"))
    return PipelineSettings.model_validate(
        {
            "feed": feed,
            "directory": str(folder / "tables"),
            "body_schema": "n INT",
            "max_changes": 60,
            "aggregates": [{"name": "daily", "select": _DAILY}],
        }
    )


def in_tables(wanted: PipelineSettings) -> Mapping[str, object]:
    """Return what is in the tables: how many changes, and how many differ; the number in each
    item, and whether it is deleted; what the figures add up to.
    """
    changes, latest, daily = (rows_of(wanted.table(x)) for x in ("changes", "latest", "daily"))
    return {
        "changes": [len(changes), len({(x["range"], x["sequence"]) for x in changes})],
        "latest": {x["key"]: [(x["value"] or {}).get("n"), x["deleted"]] for x in latest},
        "daily": [sum(x["changes"] for x in daily), sum(x["total"] for x in daily)],
    }


def main(folder: Path, remote: str) -> Mapping[str, object]:
    wanted = a_pipeline(folder)
    tables = TableQueries(spark=session(remote), settings=wanted, once=True, far=1)
    starters = tables.starters()
    for fill in tables.fillers().values():
        assert run_to_end(fill) is not None, "nothing was filled"
    found = {"spark": __version__, "filled": in_tables(wanted)}
    gone = Record(key="b", operation=Operation.DELETE)
    append_records(folder / "log", [Record(key="a", body=b'{"n": 1000}'), gone])
    for start in starters.values():
        run_to_end(start)
    found["kept"] = in_tables(wanted)
    for name, start in starters.items():
        forget_the_last_commit(wanted, name)
        run_to_end(start)
    found["repeated"] = in_tables(wanted)
    tables.spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2])) + "\n")
