"""Observers on Spark executors: the Spark sink ``changefeed_observer``.

A task has whole ranges (the source must not cut them into slices: ``whole_ranges``), one
after the other. For each it makes an observer, opens it, hands it the changes in order,
and closes it. So an observer lives for one batch, not for as long as a lease.

Delivery is at least once: Spark tries a task that failed four times, and repeats a batch
after a crash, from its beginning. Spark keeps the positions, so ``checkpoint``,
``acknowledge`` and ``flush`` of the context have nothing to do: an observer is done with
what ``process`` has returned from. There are no dead letters here, and the epoch is always
0: nothing fences a task that Spark took for dead.
"""

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from feeds.feed import Change, FeedRange, Operation, RangeId
from observers.observer import CloseReason, Observer
from observers.registry import load_observer

from .errors import PipelineRefused
from .source.envelope import ENVELOPE
from .source.spark import NAME as SOURCE
from .source.spark import settle_worker

NAME: Final = "changefeed_observer"
_PAGE: Final = 1000
_NEVER_CUT: Final = 2**62


def whole_ranges(spark: SparkSession, feed: str, start: str, max_changes: int) -> DataFrame:
    """Return a feed as a stream in which a task reads one range, from its beginning on."""
    return (
        spark.readStream.format(SOURCE)
        .option("feed", feed)
        .option("startingAt", start)
        .option("maxChangesPerTrigger", str(max_changes))
        .option("sliceChanges", str(_NEVER_CUT))
        .load()
    )


def register_observers(spark: SparkSession) -> None:
    spark.dataSource.register(ObserverSink)


class ObserverSink(DataSource):
    """The format ``changefeed_observer``. Options: ``observer``, and ``options`` as JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark calls it so
    ) -> DataSourceStreamWriter:
        given = {name.lower(): value for name, value in self.options.items()}
        if tuple(schema.names) != ENVELOPE:
            raise PipelineRefused("an observer takes changes as the source gives them, uncut")
        return ObserverWriter(given["observer"], json.loads(given.get("options", "{}")))


@dataclass
class Observed(WriterCommitMessage):
    """How many changes a task delivered."""

    changes: int


class ObserverWriter(DataSourceStreamArrowWriter):
    """Delivers in the tasks. Pickled to get there, so it carries names only."""

    def __init__(self, observer: str, options: Mapping[str, object]) -> None:
        load_observer(observer, options)  # refused here, before a task fails four times
        self._observer = observer
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle_worker()
        make = load_observer(self._observer, self._options)
        delivered = 0
        with asyncio.Runner() as runner:
            delivery = Delivery()
            try:
                for batch in iterator:
                    for changes in pages(batch):
                        runner.run(delivery.deliver(make, changes))
                        delivered += len(changes)
            except BaseException:
                runner.run(delivery.close(CloseReason.FAILED))
                raise
            runner.run(delivery.close(CloseReason.STOPPING))
        return Observed(changes=delivered)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: Spark writes down that the batch is done."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was delivered stays delivered, and comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What an observer may know in a task. See the module on what it cannot do."""

    range: FeedRange
    host: str
    epoch: int = 0
    handing_over: bool = False

    def acknowledge(self, change: Change) -> None:
        """Do nothing: Spark keeps the positions."""

    def checkpoint(self, change: Change) -> None:
        """Do nothing: Spark keeps the positions."""

    async def flush(self) -> None:
        """Do nothing: Spark keeps the positions."""


class Delivery:
    """The observer of the range that is being delivered: made, opened, and closed again.

    A task may have several ranges: each gets an observer of its own, one after the other.
    """

    def __init__(self) -> None:
        self._open: tuple[Observer, TaskContext] | None = None

    async def deliver(self, make: Any, changes: Sequence[Change]) -> None:
        name = changes[0].range_id
        if self._open is not None and self._open[1].range.id != name:
            await self.close(CloseReason.RANGE_ENDED)
        if self._open is None:
            host = f"{socket.gethostname()}-{os.getpid()}"
            self._open = make(), TaskContext(range=FeedRange(id=name), host=host)
            await self._open[0].open(self._open[1])
        observer, context = self._open
        await observer.process(context, changes)

    async def close(self, reason: CloseReason) -> None:
        if self._open is not None:
            observer, context = self._open
            self._open = None
            await observer.close(context, reason)


def pages(batch: pa.RecordBatch) -> Iterator[Sequence[Change]]:
    """Make changes of a record batch again: pages of one range each."""
    page: list[Change] = []
    for row in batch.to_pylist():
        change = _change(row)
        if page and (len(page) == _PAGE or page[0].range_id != change.range_id):
            yield page
            page = []
        page.append(change)
    if page:
        yield page


def _change(row: Mapping[str, Any]) -> Change:
    body, previous, time = row["body"], row["previous"], row["committed_at"]
    return Change(
        range_id=RangeId(row["range"]),
        sequence=row["sequence"],
        key=row["key"],
        id=row["id"],
        operation=Operation(row["operation"]),
        body=b"" if body is None else body.encode(),
        committed_us=round(time.timestamp() * 1_000_000),
        previous=None if previous is None else previous.encode(),
    )
