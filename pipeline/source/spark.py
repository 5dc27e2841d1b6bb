"""The classes that Spark calls.

Spark plans in one Python process beside the driver and reads in others, which get the
reader by pickling, without what it has open. A crash is nothing special: Spark logs the end
of a batch before anything is read, and afterwards asks for the same slices again.

Two things Spark does not do are done here. A stream without a trigger asks for the latest
offset dozens of times a second: when there is nothing, the answer takes its time
(``pollInterval``). And neither ``commit`` nor ``stop`` is relied on, since Spark leaves
them out as it likes: the feed keeps no state for a query.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from changefeed.pipeline.source.addresses import most_tasks, of_a_task
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.drain import held
from changefeed.pipeline.source.kept_access import freeze_gc, kept_access
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import (
    Ahead,
    Target,
    bundled,
    first_offset,
    plan_slices,
    slices_to,
    target_at,
    tasks,
)
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.record_batches import ENVELOPE
from changefeed.runtime.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # from Spark 4.1 on
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1, whose streams have no limits
        SupportsTriggerAvailableNow = object

NAME = "changefeed"
_TASK_CHANGES = 10_000
"""What costs a task of Spark about as much CPU as its start: 20 ms and more."""


def register(spark: SparkSession) -> None:
    """Let ``spark.read`` and ``spark.readStream`` know ``changefeed`` and ``changefeed_items``.

    Call it again before each of several concurrent streams: they would share what was
    registered, and Spark 4.2 writes to a map in it without a lock.
    Once that map is broken, every task fails with ``OptionalDataException``.
    """
    # Here, since the processes that read changes import this module, and ask for no items.
    from changefeed.pipeline.items.spark import ItemSource  # noqa: PLC0415

    spark.dataSource.register(ChangefeedSource)
    spark.dataSource.register(ItemSource)


def stream(spark: SparkSession, feed: str, **options: str) -> DataFrame:
    """Return a feed as a stream, which may run beside others; see ``options``."""
    register(spark)
    return spark.readStream.format(NAME).option("feed", feed).options(**options).load()


class ChangefeedSource(DataSource):
    """The format ``changefeed``. See ``options`` for what can be said."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        freeze_gc()
        return self._options.envelope.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        refuse_schema(self._options, schema)
        kind = FilteringReader if self._options.push_filters else BatchReader
        return kind(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if "endingat" in {name.lower() for name in self.options}:
            raise UserError(
                "a stream has no endingAt, it goes on: leave it out, and end the stream where "
                "the feed is now with .trigger(availableNow=True); or read up to a point with "
                "spark.read"
            )
        if self._options.push_filters:
            raise UserError(
                "pushFilters=true: Spark pushes no filters into a stream. Leave it out, and "
                "filter what was loaded; or read with spark.read"
            )
        refuse_schema(self._options, schema)
        has_limits = SupportsTriggerAvailableNow is not object
        return (StreamReader if has_limits else UnlimitedStreamReader)(self._options)

    @property
    def _options(self) -> Options:
        return Options.of(self.options)


def refuse_schema(options: Options, schema: StructType) -> None:
    """Raise ``UserError`` for another schema than that of the columns."""
    if schema.json() != options.envelope.spark_schema().json():
        raise UserError(
            f"changes have columns of their own, and not those of .schema(...): leave it out, "
            f"and choose with .option('columns', '{','.join(ENVELOPE)}'). Parse bodies with "
            f"changefeed.pipeline.source.body_schema.with_bodies(changes, 'n INT')"
        )


class SlicePartition(InputPartition):
    """Some slices for one task, of so many ``tasks`` that share a budget."""

    def __init__(self, slices: tuple[Slice, ...], tasks: int = 1) -> None:
        super().__init__(slices)
        self.tasks = tasks

    @property
    def slices(self) -> tuple[Slice, ...]:
        slices: tuple[Slice, ...] = self.value
        return slices


class BatchReader(DataSourceReader):
    """Reads the changes between two points, without any appended while it reads."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @query_advice()
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with kept_access(options.feed, options.cosmos, only=options.ranges) as access:
            slices = [
                y
                for x in self._wanted(access, slices_between(access, options))
                for y in access.positions.cut(x, options.slice_changes)
            ]
        # For an empty list Spark would make a partition of its own.
        return _partitions(slices, options) or [SlicePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition), "Spark hands out what it was given"
        return read_slices(self._options, partition.slices, tasks=partition.tasks)

    def _wanted(self, access: Access, slices: Sequence[Slice]) -> Iterable[Slice]:  # noqa: ARG002
        return slices


class FilteringReader(BatchReader):
    """Reads what Spark's filters leave. Spark refuses one of these where it pushes none."""

    def __init__(self, options: Options) -> None:
        from changefeed.pipeline.source.filters import Filters  # noqa: PLC0415 - Spark 4.1

        super().__init__(options)
        self._filters = Filters()

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's
        return self._filters.push(filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return map(self._filters.kept, super().read(partition))

    def _wanted(self, access: Access, slices: Sequence[Slice]) -> Iterable[Slice]:
        return self._filters.narrowed(access, slices)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a feed as a stream, a batch at a time."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._access: Access | None = None
        self._within: Target | None = None
        self._ahead: Ahead | None = None
        self._newest: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"])  # type: ignore[misc] # nothing is open in a copy

    @query_advice()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._within = target_at(self._opened(), "now")

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802 - Spark's name
        from pyspark.sql.streaming.datasource import (  # noqa: PLC0415 - not in Spark 4.1
            ReadAllAvailable,
            ReadMaxRows,
        )

        most = self._options.max_changes
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return an offset without marks, unless one was given.

        Spark does not log it, and asks again for it when it repeats the first batch. Now, and
        the ranges that there are, would be others then. So the first batch only settles where
        reading begins: its end is logged.
        """
        start = self._options.starting_at
        first = replace(start, done={}) if isinstance(start, Offset) else Offset()
        return replace(first, columns=self._columns).as_json()

    @query_advice()
    def latestOffset(self, start: dict[str, Any], limit: "ReadLimit") -> dict[str, Any]:  # noqa: N802
        if held(self._options.hold_file):
            return start
        access, begin = self._opened(), self._offset(start)
        if not begin.marks:
            begin = replace(start_of(access, self._options), columns=self._columns)
            self._ahead = Ahead.of(access, begin, self._within)
            return begin.as_json()
        most = getattr(limit, "max_rows", None)  # other limits have other names
        end = self._end(begin, most)
        if end == begin and self._within is None:
            time.sleep(self._options.poll_interval)
            if held(self._options.hold_file):
                return start
            end = self._end(begin, most)
        return end.as_json()

    def _end(self, begin: Offset, limit: int | None) -> Offset:
        seen = None if self._within is None else self._seen(begin)  # a target stays where it is
        self._ahead = seen or Ahead.of(self._opened(), begin, self._within)
        bytes_limit = self._options.bytes_limit
        return self._ahead.end(limit=limit, bytes_limit=bytes_limit, within=self._within)

    @query_advice()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the feed was when the batch was planned, in the ranges that it reads."""
        return None if self._ahead is None else self._ahead.end(within=self._within).as_json()

    @query_advice()
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        begin, goal = self._offset(start), self._offset(end)
        many, seen = self._options.slice_changes, self._seen(begin)
        if seen is not None:
            return _partitions(seen.slices(goal, changes=many), self._options)
        slices = plan_slices(self._opened(), begin, goal, changes=many)
        return _partitions(slices, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition), "Spark hands out what it was given"
        return read_slices(self._options, partition.slices, tasks=partition.tasks)

    def stop(self) -> None:
        if self._access is not None:
            self._access.close()
        self._access = None

    def _seen(self, begin: Offset) -> Ahead | None:
        """Return what was seen behind an offset, if that was asked last."""
        return self._ahead if self._ahead and self._ahead.start == begin else None

    @property
    def _columns(self) -> str:
        return ",".join(self._options.envelope.columns)

    def _offset(self, given: Mapping[str, Any]) -> Offset:
        """Read an offset. Raise ``UserError`` if it is of a query with other columns."""
        found = Offset.of(dict(given))
        if found.columns not in ("", self._columns):
            raise UserError(
                f"the query has read the columns {found.columns!r} so far, and now it is to "
                f"read {self._columns!r}: what it keeps would not fit. Name the columns as "
                f"before, or start it with a new checkpoint directory"
            )
        return found

    def _opened(self) -> Access:
        if self._access is None:
            self._access = self._options.opened()
        return self._access


class UnlimitedStreamReader(StreamReader):
    """Reads a feed as a stream of Spark 4.0 and 4.1, which say neither where a batch begins
    when they ask for its end, nor how much it may have: it has all that is there.
    """

    @query_advice()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where reading begins, in marks.

        Spark asks again if it repeats the first batch, so that has to be the same then. Raise
        ``UserError`` for a start that would not be, and for limits.
        """
        options = self._options
        if options.starting_at in ("now", "snapshot"):
            raise UserError(
                f"startingAt={options.starting_at}: Spark before 4.2 does not keep where a "
                f"stream began, and after a crash that would be elsewhere. Write a time"
            )
        if options.max_changes is not None or options.max_bytes is not None:
            raise UserError(
                "Spark before 4.2 puts all that is there into one batch: leave "
                "maxChangesPerBatch and maxBytesPerBatch out"
            )
        return self._with_columns(start_of(self._opened(), options))

    @query_advice()
    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        end = first_offset(self._opened(), "now")
        if end == self._newest:
            time.sleep(self._options.poll_interval)
            end = first_offset(self._opened(), "now")
        self._newest = end
        return self._with_columns(end)

    @query_advice()
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        access, begin = self._opened(), self._offset(start)
        within = target_at(access, self._offset(end))
        slices = slices_to(access, begin, within, changes=self._options.slice_changes)
        return _partitions([*slices], self._options)

    def _with_columns(self, offset: Offset) -> dict[str, Any]:
        return replace(offset, columns=self._columns).as_json()


def slices_between(access: Access, options: Options) -> Sequence[Slice]:
    """Return what is to be read in a batch, each range in one slice."""
    if options.slices is not None:
        return options.slices
    within = target_at(access, options.ending_at)
    return [*slices_to(access, start_of(access, options), within)]


def start_of(access: Access, options: Options) -> Offset:
    """Return the offset that the options start from, without what is for observers alone."""
    start = options.starting_at
    if isinstance(start, Offset):
        return replace(start, done={})
    return first_offset(access, start)


def _partitions(slices: Sequence[Slice], options: Options) -> list[InputPartition]:
    least = min(_TASK_CHANGES, options.slice_changes)
    found = bundled(tasks(slices, least=least), most_tasks(options.feed))
    return [SlicePartition(x, len(found)) for x in found]


def read_slices(
    options: Options, slices: Sequence[Slice], *, tasks: int = 1
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of some slices as record batches, one slice after the other.

    While a slice is read, the first page of the next one is on its way, and no more of it.
    One of so many ``tasks`` spends its part of the budget that the feed has.
    """
    if not slices:
        return
    address = of_a_task(options.feed, tasks)
    with query_advice(), kept_access(address, options.cosmos, feed=slices[0].feed) as access:
        begun = pairwise(chain(map(access.read, slices), [iter(())]))  # the next, too
        for slice_, (found, _) in zip(slices, begun, strict=True):
            for range_id, changes in found:
                yield options.envelope.batch(range_id, changes, slice_.generation)
