"""Reading with Spark's own Parquet reader what of an event log, or a cluster, is in segments.

What is to be read is settled first, range by range: the pieces. Of each, what lies in
segments is a scan of these files by Spark, without Python, and the rest is read through the
source. The border between the two is a sequence of the piece, so each change is in one of
them. A segment never changes, and what is sealed after the border was settled is
read through the source nevertheless: so a query may be run again and again. Those of a log
never go; a query over one of a cluster that has gone fails.

Spark checks Parquet's own checksums of the pages it reads; the size and the footer of each
file are checked before.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.readwriter import DataFrameReader

from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.options import Options, pieces_text
from changefeed.pipeline.source.reader import Access, FilePart, HasFiles, Slice
from changefeed.pipeline.source.record_batches import ENVELOPE, Envelope
from changefeed.pipeline.source.spark import NAME, pieces_between, register

_READING: Final[Mapping[str, str]] = {
    # What a session may be set to would leave out files that cannot be read, or change times.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}

_GENERATION: Final = "generation"

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
    with closing(open_access(wanted.feed, wanted.ranges)) as access:
        plan = planned(access, pieces_between(access, wanted))
    return rows_of(spark, plan, wanted.feed, wanted.envelope, options)


def scannable(access: Access) -> HasFiles | None:
    """Return the feed whose segments Spark may read by itself, if it is such a feed."""
    if not isinstance(access, HasFiles) or not access.place:
        return None
    return access if _PATTERNS.isdisjoint(access.place) else None


def planned(access: Access, pieces: Sequence[Slice]) -> Plan:
    """Decide which way each change is read."""
    log = scannable(access)
    if log is None:
        return Plan(scans=(), left=pieces)
    scans: list[Scan] = []
    left: list[Slice] = []
    for piece in pieces:
        parts, rest = log.split(piece)
        scans += [Scan(part=x, generation=piece.generation) for x in parts]
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
        _scanned(
            spark, [x for x in plan.scans if (x.generation, x.part.is_whole) == of], envelope
        )
        for of in sorted({(x.generation, x.part.is_whole) for x in plan.scans})
    ]
    if plan.left or not found:
        found.append(_left(spark, plan.left, feed, envelope, options or {}))
    return reduce(DataFrame.union, found)


def _scanned(spark: SparkSession, scans: Sequence[Scan], envelope: Envelope) -> DataFrame:
    """Return the rows of parts that have one generation, and are all whole, or all cut.

    Each call into Java is a wait for it, in each batch of a table that is filled: so Spark
    is asked for the columns as they are wanted, and for nothing that changes nothing.
    """
    parts = [x.part for x in scans]
    whole = parts[0].is_whole
    wanted = envelope.columns if whole else ENVELOPE
    stored = tuple(x for x in wanted if x != _GENERATION) or ENVELOPE
    rows = _reader(spark, stored).parquet(*(f"file://{x.path}" for x in parts))
    if not whole:
        rows = rows.where(_bounds(parts))
    if _GENERATION in envelope.columns:
        rows = rows.withColumn(_GENERATION, F.lit(scans[0].generation))
        stored = (*stored, _GENERATION)
    return rows if stored == envelope.columns else rows.select(*envelope.columns)


def _bounds(parts: Sequence[FilePart]) -> str:
    """Return the condition that only what is wanted of each file meets."""
    return " OR ".join(
        f"(range = '{x.path.parent.name}' AND sequence > {x.after} AND sequence <= {x.end})"
        for x in parts
    )


def _reader(spark: SparkSession, columns: tuple[str, ...]) -> DataFrameReader:
    return spark.read.schema(Envelope(columns=columns).spark_schema()).options(**_READING)


def _left(
    spark: SparkSession,
    pieces: Sequence[Slice],
    feed: str,
    envelope: Envelope,
    options: Mapping[str, str],
) -> DataFrame:
    register(spark)
    given = {name: x for name, x in options.items() if name.lower() == "slicechanges"}
    return (
        spark.read.format(NAME)
        .options(
            feed=feed,
            columns=",".join(envelope.columns),
            pieces=pieces_text(pieces),
            **given,
        )
        .load()
    )
