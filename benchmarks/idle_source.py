"""A source of Spark that does no work in Python: the least that such a source can take.

It hands over one batch again and again, in as many ranges and of the same size as a log's.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.pipeline.source.record_batches import Envelope

from .logs import records

NAME: Final = "idle"
_ROWS: Final = 12_500
_RANGE: Final = RangeId("e1.p01.v00-ff")


class IdleSource(DataSource):
    """Options: ``ranges``, and ``rows`` of all of them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return Envelope().spark_schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _Reader(int(self.options["ranges"]), int(self.options["rows"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, ranges: int, rows: int) -> None:
        assert rows % (ranges * _ROWS) == 0, "batches are all of one size"
        self._ranges, self._batches = ranges, rows // ranges // _ROWS

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"batches": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"batches": self._batches}

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        batches = end["batches"] - start["batches"]
        return [InputPartition(batches) for _ in range(self._ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        changes = [
            Change(_RANGE, n, x.key, "", Operation.REPLACE, x.body, n)
            for n, x in enumerate(records(0, _ROWS))
        ]
        batch = Envelope().batch(_RANGE, changes, 0)
        for _ in range(partition.value):
            yield batch
