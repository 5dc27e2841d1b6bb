"""Observers on Spark executors: the Spark sink ``changefeed_observer``.

A task has whole ranges (the source must not cut them into slices: ``whole_ranges``), one
after the other. For each it makes an observer, opens it, hands it the changes in order,
and closes it. So an observer lives for one batch, not for as long as a lease. It gets
what an observer on a host gets: retries with growing delays, a time limit, concurrent keys,
dead letters.

Delivery is at least once. A task that fails is tried again by Spark, and a batch after a
crash, each from its beginning: (range, sequence) identifies a repeat. Within a task only
what is not done comes again.

Spark keeps the positions. ``acknowledge`` and ``checkpoint`` of the context say what must
not come again to this task; ``flush`` has nothing to do. The epoch is the number of the
batch, from 1 on, counted from what ``epoch`` says. It fences off tasks of earlier batches
that Spark took for dead; two attempts at one batch have the same.

Limits: all ranges wait for the slowest of a batch, and for one whose observer fails. Dead
letters are written where the task runs; in an outage, each worker process of Spark may put
a change of a range aside on suspicion. A task logs to its executor's log;
what it retried or put aside is counted when its batch is done.
"""

import asyncio
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from structlog.typing import FilteringBoundLogger

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.observers.call import ObserverMaker
from changefeed.observers.dead_letters import DeadLetter, Origin, open_dead_letters
from changefeed.observers.errors import ObserverFailed, ObserverStuck
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.middleware.poison import PoisonSuspicion
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import CloseReason, Observer
from changefeed.observers.registry import load_observer
from changefeed.pipeline.checkpoint_dir import Failures, report_failures
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import ObserverSettings
from changefeed.pipeline.source.record_batches import ENVELOPE
from changefeed.pipeline.source.spark import settle_worker, stream
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.settings import LogSettings

_log = get_logger()

NAME: Final = "changefeed_observer"
_PAGE: Final = 1000
_NEVER_CUT: Final = 2**62
_CLOSE_TIMEOUT: Final = 10.0
_BATCH: Final = "streaming.sql.batchId"

# Kept for as long as the process, which Spark uses for one task after the other: in an
# outage that outlives batches, each change would else be the first under suspicion.
_suspicions = defaultdict[RangeId, PoisonSuspicion](PoisonSuspicion)


def whole_ranges(spark: SparkSession, feed: str, **options: str) -> DataFrame:
    """Return a feed as a stream in which a task reads whole ranges; see ``options``."""
    return stream(spark, feed, **options, sliceChanges=str(_NEVER_CUT))


def register_observers(spark: SparkSession) -> None:
    spark.dataSource.register(ObserverSink)


class ObserverSink(DataSource):
    """The format ``changefeed_observer``.

    Options, all text: ``observer``, settings as JSON; ``log``, likewise; ``epoch``, on which
    the epochs are counted; ``identity``, that of the feed's changes, for dead letters. Where
    the query keeps its checkpoint distinguishes its letters from those of others.
    """

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
        return ObserverWriter(
            ObserverSettings.model_validate_json(given["observer"]),
            LogSettings.model_validate_json(given.get("log", "{}")),
            epoch=int(given.get("epoch", "0")),
            identity=given["identity"],
            checkpoint=given.get("checkpointlocation"),
        )


@dataclass
class Observed(WriterCommitMessage):
    """What a task delivered, and what went wrong in it."""

    changes: int
    failures: Failures


class Tally(FailureLog):
    """Counts what it logs, by range: a task has no metrics that anybody could see."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(log)
        self._retries = Counter[RangeId]()
        self._dead_letters = Counter[RangeId]()

    @property
    def failures(self) -> Failures:
        return Failures(retries=dict(self._retries), dead_letters=dict(self._dead_letters))

    def observer_retrying(
        self, range_id: RangeId, attempt: int, error: BaseException, delay: float
    ) -> None:
        self._retries[range_id] += 1
        super().observer_retrying(range_id, attempt, error, delay)

    def dead_letter(self, letter: DeadLetter) -> None:
        self._dead_letters[letter.range_id] += 1
        super().dead_letter(letter)


class ObserverWriter(DataSourceStreamArrowWriter):
    """Delivers in the tasks. Pickled to get there, so it carries values only."""

    def __init__(
        self,
        settings: ObserverSettings,
        log: LogSettings,
        *,
        epoch: int,
        identity: str,
        checkpoint: str | None = None,
    ) -> None:
        assert settings.name is not None, "checked where the query is started"
        load_observer(settings.name, settings.options)  # refused before tasks fail
        self._settings = settings
        self._log = log
        self._epoch = epoch
        self._origin = Origin(feed=identity, observer=settings.name, fleet=checkpoint or "")
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle_worker()
        set_up_logs(self._log)
        epoch = self._epoch + 1 + int(_local_property(_BATCH) or 0)
        host = f"{socket.gethostname()}-{os.getpid()}"
        pieces = (changes for batch in iterator for changes in pages(batch))
        work = delivered(self._settings, pieces, host, epoch, origin=self._origin)
        with asyncio.Runner() as runner:
            return run_main_task(runner, work)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Report what failed. Spark itself records that the batch is done."""
        if self._checkpoint is not None:
            failures = [x.failures for x in messages if isinstance(x, Observed)]
            report_failures(self._checkpoint, batchId, Failures.together(failures))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was delivered stays delivered, and comes again."""


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


async def delivered(
    settings: ObserverSettings,
    pieces: Iterator[Sequence[Change]],
    host: str,
    epoch: int,
    *,
    origin: Origin,
) -> Observed:
    """Hand pieces of one range after the other to its observer; return what became of them.

    Raise ``ObserverFailed`` if the settings say to stop then, and ``ObserverStuck``.
    """
    assert settings.name is not None, "checked where the query is started"
    journal = Tally(_log.bind(host=host, epoch=epoch))
    count = 0
    async with AsyncExitStack() as stack:
        letters = None
        if settings.on_failure == "dead-letter":
            letters = await stack.enter_async_context(open_dead_letters(settings.dead_letters))
        make = wrap(
            load_observer(settings.name, settings.options),
            settings,
            journal,
            Random(),  # noqa: S311 - spreads delays, guards nothing
            dead_letters=letters,
            origin=origin,
            suspicions=_suspicions,
        )
        delivery = Delivery(make, settings, journal, host=host, epoch=epoch)
        try:
            for changes in pieces:
                await delivery.deliver(changes)
                count += len(changes)
        except BaseException as error:
            if not isinstance(error, ObserverStuck):
                await delivery.close(CloseReason.FAILED)
            raise
        await delivery.close(CloseReason.STOPPING)
    return Observed(changes=count, failures=journal.failures)


@dataclass(slots=True, kw_only=True)
class RangeContext:
    """What an observer may know in a task, and what it says is done of what it was given."""

    range: FeedRange
    host: str
    epoch: int
    handing_over: bool = False
    _done: set[int] = field(default_factory=set, init=False)
    _done_up_to: int = field(default=-1, init=False)

    def acknowledge(self, change: Change) -> None:
        self._done.add(change.sequence)

    def checkpoint(self, change: Change) -> None:
        self._done_up_to = max(self._done_up_to, change.sequence)

    async def flush(self) -> None:
        """Do nothing: Spark keeps the positions."""

    def left(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Return those that are not done."""
        return [
            x for x in changes if x.sequence > self._done_up_to and x.sequence not in self._done
        ]


class _Open:
    """The gate of a task: nothing here takes a range away from it."""

    def check(self) -> None:
        """Let everything pass."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Delivery:
    """The observer of the range that is being delivered: made, opened, and closed again.

    A task may have several ranges: each gets an observer of its own, one after the other.
    """

    def __init__(
        self,
        make: ObserverMaker,
        settings: ObserverSettings,
        journal: FailureLog,
        *,
        host: str,
        epoch: int,
    ) -> None:
        self._make = make
        self._settings = settings
        self._journal = journal
        self._host = host
        self._epoch = epoch
        self._gate = _Open()
        self._opened: tuple[Observer, RangeContext] | None = None

    async def deliver(self, changes: Sequence[Change]) -> None:
        """Return when all are done; after a failure, reopen the observer and retry."""
        name = changes[0].range_id
        if self._opened is not None and self._opened[1].range.id != name:
            await self.close(CloseReason.STOPPING)
        while changes:
            try:
                observer, context = self._opened or await self._open(name)
                await observer.process(context, changes)
            except ObserverFailed as error:
                changes = await self._failed(changes, error)
            else:
                return

    async def close(self, reason: CloseReason) -> None:
        if self._opened is None:
            return
        observer, context = self._opened
        self._opened = None
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await observer.close(context, reason)
        except Exception as error:  # noqa: BLE001 - the border to the user's code
            self._journal.close_failed(context.range.id, error)

    async def _open(self, name: RangeId) -> tuple[Observer, RangeContext]:
        feed_range = FeedRange(id=name)
        context = RangeContext(range=feed_range, host=self._host, epoch=self._epoch)
        self._opened = self._make(feed_range, self._gate), context
        await self._opened[0].open(context)
        return self._opened

    async def _failed(
        self, changes: Sequence[Change], error: ObserverFailed
    ) -> Sequence[Change]:
        """Rest, unless the settings say to stop; return what is not done."""
        assert self._opened is not None, "it was made"
        left = self._opened[1].left(changes)
        await self.close(CloseReason.FAILED)
        if self._settings.on_failure == "stop":
            raise error
        rest = self._settings.retry.max_delay
        self._journal.observer_gave_up(error.range_id, error, rest)
        await self._gate.sleep(rest)
        return left


def pages(batch: pa.RecordBatch) -> Iterator[Sequence[Change]]:
    """Make changes of a record batch again: pages of one range each."""
    page: list[Change] = []
    at = batch.schema.get_field_index("committed_at")
    times = batch.column(at).cast(pa.int64())  # a log may have times that no datetime can say
    for row in batch.set_column(at, "committed_at", times).to_pylist():
        change = _change(row)
        if page and (len(page) == _PAGE or page[0].range_id != change.range_id):
            yield page
            page = []
        page.append(change)
    if page:
        yield page


def _change(row: Mapping[str, Any]) -> Change:
    body, previous = row["body"], row["previous"]
    return Change(
        range_id=RangeId(row["range"]),
        sequence=row["sequence"],
        key=row["key"],
        id=row["id"],
        operation=Operation(row["operation"]),
        body=b"" if body is None else body.encode(),
        committed_us=row["committed_at"],
        previous=None if previous is None else previous.encode(),
    )
