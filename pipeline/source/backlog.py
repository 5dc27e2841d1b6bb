"""What of a log is in segments, read by Spark's own Parquet reader: at once, or as a stream.

What is to be read is settled first, range by range: the slices. Of each, what lies in
segments is a scan of these files by Spark, without Python, and the rest is read through the
source. The border between the two is a sequence of the slice, so each change is in one of
them. A segment never changes, and what is compacted after the border was settled is read
through the source nevertheless: so a query may be run again and again. One over a segment
that has gone fails. Spark checks Parquet's own checksums of the pages it reads; the size and
the footer of each file are checked before.

A table that starts far behind is filled by a stream of this, up to the end of the last
segment of each range, as it is when the query starts. What lies behind it comes through
the source, in the query after. Both keep the same offsets in one checkpoint, so the border is
wherever the last batch of the fill has ended, and a batch that is repeated has the same
changes, whichever of the two queries repeats it. A batch of the fill has a row for each of
its slices, and no changes: ``foreachBatch`` gets the rows, and has Spark read the slices.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import StringType, StructField, StructType

from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.lineage import ancestors
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.options import (
    CREDENTIALS,
    Options,
    slices_from_text,
    slices_text,
)
from changefeed.pipeline.source.planning import Target, plan_slices, slices_to
from changefeed.pipeline.source.reader import Access, FilePart, Slice
from changefeed.pipeline.source.record_batches import ENVELOPE, Envelope
from changefeed.pipeline.source.spark import (
    NAME,
    ChangefeedSource,
    SlicePartition,
    StreamReader,
    register,
    slices_between,
    start_of,
)
from changefeed.pipeline.source.stored_reader import StoredAccess

_READING: Final[Mapping[str, str]] = {
    # What a session may be set to would leave out files that cannot be read, or change times.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}

FILL: Final = "changefeed_fill"
_COLUMN: Final = "slice"
_GENERATION: Final = "generation"

_HANDED_ON: Final = {x.lower() for x in ("sliceChanges", *CREDENTIALS)}
"""The options for reading what Spark does not read by itself."""

_PATTERNS: Final = frozenset("{}[]*?\\")
"""Spark takes a path with any of these for a pattern, and cannot be kept from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A part of a segment, and the generation of its range."""

    part: FilePart
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What Spark reads by itself, and what is left for the source."""

    scans: Sequence[Scan]
    left: Sequence[Slice]


def read(spark: SparkSession, feed: str, **options: str) -> DataFrame:
    """Return the changes of a feed between two points, as rows with the columns of a change.

    ``options`` are those of the source ``changefeed``. What is read is settled now, so all
    that is made of it sees the same changes. Raise what opening the feed raises.
    """
    wanted = Options.of({"feed": feed, **options})
    with closing(wanted.opened()) as access:
        plan = planned(access, slices_between(access, wanted))
    return rows_of(spark, plan, wanted.feed, wanted.envelope, options)


def scannable(access: Access) -> StoredAccess | None:
    """Return the feed whose segments Spark may read by itself, if it is such a feed."""
    if not isinstance(access, StoredAccess) or not access.place:
        return None
    return access if _PATTERNS.isdisjoint(access.place) else None


def planned(access: Access, slices: Sequence[Slice]) -> Plan:
    """Decide which way each change is read."""
    log = scannable(access)
    if log is None:
        return Plan(scans=(), left=slices)
    scans: list[Scan] = []
    left: list[Slice] = []
    for slice_ in slices:
        parts, rest = log.split(slice_)
        scans += [Scan(part=x, generation=slice_.generation) for x in parts]
        left += rest
    return Plan(scans=scans, left=left)


def rows_of(
    spark: SparkSession,
    plan: Plan,
    feed: str,
    envelope: Envelope,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a plan, with the columns of the envelope."""
    found = [
        _scanned(spark, parts, generation, envelope)
        for generation in sorted({x.generation for x in plan.scans})
        for parts in _whole_and_cut([x.part for x in plan.scans if x.generation == generation])
    ]
    if plan.left or not found:
        found.append(_left(spark, plan.left, feed, envelope, options or {}))
    return reduce(DataFrame.union, found)


def _whole_and_cut(parts: Sequence[FilePart]) -> Iterator[Sequence[FilePart]]:
    """Yield the parts of files that are read as wholes, and those of others."""
    wanted = Counter[Path]()
    for x in parts:
        wanted[x.path] += x.end - x.after
    for whole in (True, False):
        if found := [x for x in parts if (wanted[x.path] == x.records) is whole]:
            yield found


def _scanned(
    spark: SparkSession, parts: Sequence[FilePart], generation: int, envelope: Envelope
) -> DataFrame:
    """Return the rows of parts, whose files are all read as wholes, or all cut.

    Each call into Java is a wait for it, in each batch of a table that is filled: so Spark
    is asked for the columns as they are wanted, and for nothing that changes nothing.
    """
    files = {x.path: x.records for x in parts}
    whole = sum(files.values()) == sum(x.end - x.after for x in parts)
    wanted = envelope.columns if whole else ENVELOPE
    stored = tuple(x for x in wanted if x != _GENERATION) or ENVELOPE
    rows = _reader(spark, stored).parquet(*(f"file://{x}" for x in files))
    if not whole:
        rows = rows.where(_bounds(parts))
    if _GENERATION in envelope.columns:
        rows = rows.withColumn(_GENERATION, F.lit(generation))
        stored = (*stored, _GENERATION)
    return rows if stored == envelope.columns else rows.select(*envelope.columns)


def _bounds(parts: Sequence[FilePart]) -> str:
    """Return the condition that only what is wanted of the files meets."""
    stretches: list[FilePart] = []
    for x in sorted(parts, key=lambda x: (x.range_id, x.after)):
        before = stretches[-1] if stretches else None
        if before is not None and (before.range_id, before.end) == (x.range_id, x.after):
            stretches[-1] = replace(before, end=x.end)
        else:
            stretches.append(x)
    return " OR ".join(
        f"(range = '{x.range_id}' AND sequence > {x.after} AND sequence <= {x.end})"
        for x in stretches
    )


def _reader(spark: SparkSession, columns: tuple[str, ...]) -> DataFrameReader:
    return spark.read.schema(Envelope(columns=columns).spark_schema()).options(**_READING)


def _left(
    spark: SparkSession,
    slices: Sequence[Slice],
    feed: str,
    envelope: Envelope,
    options: Mapping[str, str],
) -> DataFrame:
    register(spark)
    given = {name: x for name, x in options.items() if name.lower() in _HANDED_ON}
    return (
        spark.read.format(NAME)
        .options(
            feed=feed,
            columns=",".join(envelope.columns),
            slices=slices_text(slices),
            **given,
        )
        .load()
    )


def border(access: StoredAccess) -> Target:
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
    with (
        query_advice(),
        closing(wanted.opened()) as access,
    ):
        log = scannable(access)
        if log is None or not log.sealed():
            return 0
        start = start_of(access, wanted) if done is None else done
        return sum(
            access.positions.distance(x.start, x.end)
            for x in slices_to(access, start, border(log))
        )


def fill_stream(spark: SparkSession, feed: str, **options: str) -> DataFrame:
    """Return the slices of a feed as a stream; the options are those of the source."""
    spark.dataSource.register(FillSource)
    return spark.readStream.format(FILL).option("feed", feed).options(**options).load()


def changes_of(batch: DataFrame, feed: str, envelope: Envelope) -> DataFrame:
    """Return the changes of the slices in a batch, read in the way that suits each."""
    slices = [x for row in batch.collect() for x in slices_from_text(row[_COLUMN])]
    with query_advice(), closing(open_access(feed)) as access:
        plan = planned(access, slices)
    return rows_of(batch.sparkSession, plan, feed, envelope)


class FillSource(ChangefeedSource):
    """The format ``changefeed_fill``, for streams that end at the border."""

    @classmethod
    def name(cls) -> str:
        return FILL

    def schema(self) -> StructType:
        return StructType([StructField(_COLUMN, StringType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return FillReader(self._options)


class FillReader(StreamReader):
    """Plans as the source does, up to the border, and hands out its plan."""

    @query_advice()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        access = self._opened()
        assert isinstance(access, StoredAccess), "nothing else has segments"
        self._within = border(access)

    @query_advice()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the feed was when the batch was planned, also behind the border."""
        return None if self._ahead is None else self._ahead.end().as_json()

    @query_advice()
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        begin, goal = self._offset(start), self._offset(end)
        found = plan_slices(self._opened(), begin, goal, changes=sys.maxsize)
        return [SlicePartition(tuple(found))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition), "Spark hands out what it was given"
        rows = [slices_text([x]) for x in partition.slices]
        if rows:
            yield pa.RecordBatch.from_pydict({_COLUMN: rows})
