"""The sample that draws delays: its figures are those of the data."""

import asyncio
from pathlib import Path

import pytest

from feeds.eventlog import EventLogWriter, create_log
from samples.delays.drawing import draw
from samples.delays.tables import keep_tables
from samples.flights.changes import records
from samples.flights.data import Sample, zones
from samples.flights.straight import straight_from

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("default"),  # pyspark's own are not ours to mend
]

SAMPLE = Sample(scale=0.005)


async def the_flights(path: Path) -> None:
    await create_log(path, parts=4)
    async with EventLogWriter.open(path, synchronous="off") as writer:
        await writer.append(list(records(SAMPLE.rows(), zones())))


def test_the_tables_of_the_flights_have_what_the_data_has_and_are_drawn(tmp_path: Path) -> None:
    asyncio.run(the_flights(tmp_path / "log"))
    kept = keep_tables(tmp_path, {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    expected = straight_from(SAMPLE.rows())
    assert (kept.changes, kept.flights) == (expected.changes, len(expected.happened))
    assert kept.departures() == {
        name: (x.departed, x.departure_delay)
        for name, x in expected.carriers.items()
        if x.departed
    }
    draw(kept, tmp_path / "delays.png")
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
