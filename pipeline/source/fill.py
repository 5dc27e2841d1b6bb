"""A stream of what there is to read, for those who read it by themselves.

A table that starts far behind takes what of a feed is in segments by scans of Spark
(``backlog``), up to one border: the end of the last segment of each range, as it is when the
query starts. What lies behind it comes through the source, in the query after.

Spark keeps the offsets of both queries in the same checkpoint, and they are the same: where
each range is. So the border is wherever the last batch of the fill has ended. A batch that
is repeated has the changes between the same two offsets, whichever of the two queries
repeats it, and whether they have been sealed meanwhile or not.

A batch of this stream has a row for each of its slices, and no changes: ``foreachBatch``
gets the rows, and has Spark read the slices in the way that suits each.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.backlog import planned, rows_of, scannable
from changefeed.pipeline.source.lineage import ancestors
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.options import Options, pieces_of, pieces_text
from changefeed.pipeline.source.planning import Target, batches, next_offset, slices
from changefeed.pipeline.source.reader import HasFiles
from changefeed.pipeline.source.record_batches import Envelope
from changefeed.pipeline.source.spark import (
    ChangefeedSource,
    SlicePartition,
    StreamReader,
    start_of,
)

NAME: Final = "changefeed_fill"
_COLUMN: Final = "slice"


def border(access: HasFiles) -> Target:
    """Return how far a fill reads: to the end of what is in segments.

    A range that has ended is read to its end where there are segments of ranges that go on
    with its keys: these come after.
    """
    sealed = access.sealed()
    known = {x.id: x for x in access.ranges()}
    before = ancestors(sealed, known)
    points = {**sealed, **access.starts(before, "now")}
    return Target.of({x: Mark(position=at) for x, at in points.items() if x in known})


def waiting(feed: str, done: Offset | None, options: Mapping[str, str]) -> int:
    """Return how many changes a fill would read: those between an offset and the border.

    Without an offset, from where the options say. None, for a feed of which Spark can read
    nothing by itself.
    """
    wanted = Options.of({"feed": feed, **options})
    with query_advice(), closing(open_access(wanted.feed, wanted.ranges)) as access:
        log = scannable(access)
        if log is None or not log.has_segments():
            return 0
        start = start_of(access, wanted) if done is None else done
        return sum(
            access.positions.distance(x.start, x.end)
            for begin, end in batches(access, start, border(log))
            for x in slices(access, begin, end, changes=sys.maxsize)
        )


def fill_stream(spark: SparkSession, feed: str, **options: str) -> DataFrame:
    """Return the slices of a feed as a stream; the options are those of the source."""
    spark.dataSource.register(FillSource)
    return spark.readStream.format(NAME).option("feed", feed).options(**options).load()


def changes_of(batch: DataFrame, feed: str, envelope: Envelope) -> DataFrame:
    """Return the changes of the slices in a batch, read in the way that suits each."""
    pieces = [x for row in batch.collect() for x in pieces_of(row[_COLUMN])]
    with query_advice(), closing(open_access(feed)) as access:
        plan = planned(access, pieces)
    return rows_of(batch.sparkSession, plan, feed, envelope)


class FillSource(ChangefeedSource):
    """The format ``changefeed_fill``, for streams that end at the border."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType([StructField(_COLUMN, StringType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return FillReader(self._options)


class FillReader(StreamReader):
    """Plans as the source does, up to the border, and hands out its plan."""

    @query_advice()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        access = self._opened()
        assert isinstance(access, HasFiles), "nothing else has segments"
        self._within = border(access)

    @query_advice()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the feed is now, also behind the border."""
        if self._newest is None:
            return None
        return next_offset(self._opened(), self._newest).as_json()

    @query_advice()
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        begin, goal = self._offset(start), self._offset(end)
        found = slices(self._opened(), begin, goal, changes=sys.maxsize)
        return [SlicePartition(tuple(found))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition), "Spark hands out what it was given"
        rows = [pieces_text([x]) for x in partition.slices]
        if rows:
            yield pa.RecordBatch.from_pydict({_COLUMN: rows})
