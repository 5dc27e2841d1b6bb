"""A stream that starts with a snapshot, killed at each step while its container changes.

The steps are those in which Spark calls a source; each has readers of its own. What Spark has
not logged it asks for again: where to begin, until the end of the first batch is logged.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import StreamReader
from tests.support.cosmos_history import Found, History
from tests.support.pipeline_cosmos import ServedCosmos, served_cosmos

_STEPS = 14


@dataclass(kw_only=True)
class Query:
    """A query as its checkpoint has it. ``meanwhile`` happens between the steps."""

    options: Options
    random: Random
    cosmos: ServedCosmos
    history: History
    logged: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    begun: Mapping[str, int] = field(default_factory=dict)

    def meanwhile(self) -> None:
        if self.history.steps < _STEPS and self.random.random() < 0.4:
            self.cosmos.do(self.history.happens())

    @property
    def reader(self) -> StreamReader:
        """Return one that has nothing open, as after a crash, and as a task gets it."""
        self.meanwhile()
        made: StreamReader = pickle.loads(pickle.dumps(StreamReader(self.options)))
        return made

    def start(self) -> dict[str, Any]:
        return self.logged[-1] if self.logged else self.reader.initialOffset()

    def batch(self) -> bool:
        """Run a batch, however often it dies on the way. Return whether there was one."""
        while True:
            start, planner = self.start(), self.reader
            if self.history.steps < _STEPS and self.random.random() < 0.3:
                planner.prepareForTriggerAvailableNow()
                self.meanwhile()
            limit = self.random.choice([ReadAllAvailable(), ReadMaxRows(3)])
            end = planner.latestOffset(start, limit)
            planner.stop()
            if not self.logged:
                self.begun = self.history.counts()
            if end == start:
                return False
            if self.random.random() < 0.7:
                break  # else it dies before the end is logged
        while True:
            start, planner = self.start(), self.reader
            slices = planner.partitions(start, end)
            planner.stop()
            rows = [
                y for x in slices for batch in self.reader.read(x) for y in batch.to_pylist()
            ]
            if self.random.random() < 0.7:
                break  # else its rows are lost, and Spark repeats it
        self.logged.append(end)
        self.rows += rows
        return True


def told(row: dict[str, Any]) -> Found:
    number = msgspec.json.decode(row["body"])["n"] if row["body"] else None
    return row["id"], row["operation"], number


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_each_step_a_stream_tells_what_was_there_and_then_each_version_once(
    seed: int,
) -> None:
    random = Random(seed)
    with served_cosmos(ranges=random.choice([1, 2])) as cosmos:
        history = History(world=cosmos.world, random=random)
        for _ in range(5):
            cosmos.do(history.happens())
        options = {
            "feed": cosmos.address(None),
            "mode": "all-versions",
            "initialSnapshot": "true",
            "columns": "range,sequence,key,id,operation,body,generation",
            "sliceChanges": random.choice(["2", "1000"]),
            "pollInterval": "0",
            **random.choice([{}, {"maxBytesPerBatch": "400"}]),
        }
        query = Query(
            options=Options.of(options), random=random, cosmos=cosmos, history=history
        )
        while history.steps < _STEPS:
            query.batch()
        while query.batch():
            pass
        assert not history.missed(map(told, query.rows), query.begun)
        ordered = sorted(query.rows, key=itemgetter("generation", "sequence"))
        latest = {x["id"]: told(x) for x in ordered}
        assert {x: y[2] for x, y in latest.items() if y[1] != "delete"} == history.state()
