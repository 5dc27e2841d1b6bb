"""What a process of Spark imports: one starts for each query, others with the first tasks."""

from pathlib import Path

from changefeed import open_sync_producer
from tests.support.processes import python

_SLOW = {"opentelemetry", "pandas", "pydantic", "pydantic_settings", "rich", "structlog"}
_CLIENTS = {"aiohttp", "azure", "obstore"}
_READ = """
import sys
from pyspark.sql.streaming.datasource import ReadAllAvailable
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import BatchReader, StreamReader

options = Options.of(dict(zip(sys.argv[1::2], sys.argv[2::2])))
if options.cosmos is None:
    stream, everything = StreamReader(options), ReadAllAvailable()
    begin = stream.latestOffset(stream.initialOffset(), everything)
    slices = stream.partitions(begin, stream.latestOffset(begin, everything))
    slices += BatchReader(options).partitions()
    assert [sum(y.num_rows for y in stream.read(x)) for x in slices] == [2, 2]
print(*{x.partition(".")[0] for x in sys.modules})
"""


def imported(**options: str) -> set[str]:
    """Return the top-level names of what was imported to read with these options."""
    given = [x for pair in options.items() for x in pair]
    return set(python(_READ, *given).stdout.split())


def test_a_log_is_planned_and_read_without_what_takes_long_to_import(tmp_path: Path) -> None:
    with open_sync_producer(tmp_path / "log", parts=1) as producer:
        producer.send("k", b'{"n": 1}')
        producer.send("k", b'{"n": 2}', id="of another key")
    columns = "range,sequence,key,id,operation,body,previous,committed_at,generation"
    found = imported(feed=f"eventlog:{tmp_path / 'log'}", columns=columns)
    assert found & (_SLOW | _CLIENTS) == set()


def test_cosmos_db_takes_its_client_alone() -> None:
    found = imported(feed="cosmos://host/database/container", accessKey="bm8ga2V5")
    assert found & (_SLOW | _CLIENTS) == {"aiohttp", "azure"}
