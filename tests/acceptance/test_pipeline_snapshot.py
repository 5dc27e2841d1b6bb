"""A query of Spark that starts with a snapshot, killed in its batches and between them."""

import json
import sys
from pathlib import Path
from random import Random

import pytest

from tests.support.cosmos_history import History
from tests.support.pipeline_cosmos import served_cosmos
from tests.support.processes import PATIENCE, beside, ended, until

PROGRAM = """\
import json, sys
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.source.body_schema import with_bodies

feed, limit, once = sys.argv[1:]
with spark_session("q", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}) as spark:
    changes = spark.readStream.format("changefeed").options(
        feed=feed, mode="all-versions", initialSnapshot="true", **json.loads(limit)
    )
    rows = with_bodies(changes.load(), "n INT").select("id", "operation", "value.n", "sequence")
    writer = rows.writeStream.option("checkpointLocation", "checkpoint").option("path", "rows")
    if once == "once":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    found = spark.read.parquet("rows").orderBy("sequence").collect()
    print(json.dumps([[x["id"], x["operation"], x["n"]] for x in found]))
"""


@pytest.mark.parametrize(
    "limit",
    [{"maxChangesPerBatch": "9"}, {"maxBytesPerBatch": "1500", "maxRUPerSecond": "2000"}],
)
def test_killed_in_batches_and_between_them_a_query_has_the_snapshot_and_each_version_once(
    limit: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with served_cosmos() as cosmos:
        history = History(world=cosmos.world, random=Random())
        for _ in range(6):
            cosmos.do(history.happens())
        begun = history.counts()
        command = (sys.executable, "program.py", cosmos.address(None), json.dumps(limit))
        for file in ("offsets/0", "offsets/1", "commits/1", "offsets/2"):
            kept, said = tmp_path / "checkpoint" / file, tmp_path / "said"
            with beside(*command, "until-killed", cwd=tmp_path, said=said) as process:
                until(kept.exists, process, said, patience=PATIENCE)
            cosmos.do(history.happens())
        done = ended(*command, "once", cwd=tmp_path, patience=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = [tuple(x) for x in json.loads(done.stdout.splitlines()[-1])]
    assert not history.missed(found, begun)
