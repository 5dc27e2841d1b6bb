"""Observers on Spark executors: the Spark sink ``changefeed_observer``.

A task has whole ranges (the source must not cut them into slices: ``WHOLE_RANGES``), one
after the other. For each it makes an observer, opens it, hands it the changes in order,
and closes it. So an observer lives for one batch, not for as long as a lease. It is called
as a host calls it: with retries, a time limit, concurrent keys, dead letters.

Delivery is at least once. A task that fails is tried again by Spark, and a batch after a
crash, each from its beginning: (range, sequence) identifies a repeat. Within a task only
what is not done comes again.

Spark keeps the positions. What the context is told is done does not come again to this task;
``flush`` has nothing to do. The epoch is
the number of the batch, from 1 on, counted from what ``epoch`` says. It fences off tasks of
earlier batches that Spark took for dead; two attempts at one batch have the same.

Limits: all ranges wait for the slowest of a batch, and for one whose observer fails. Dead
letters are written where the task runs; in an outage, each worker process of Spark may put
a change of a range aside on suspicion. What a task retries or puts aside is in its
executor's log.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from itertools import groupby
from random import Random
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.observers.dead_letters import Origin, open_dead_letters
from changefeed.observers.errors import ObserverFailed, ObserverStuck
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Successes
from changefeed.observers.maker import ObserverMaker
from changefeed.observers.observer import CloseReason
from changefeed.observers.range_observers import RangeObservers
from changefeed.observers.registry import load_observer
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import ObserverSettings
from changefeed.pipeline.source.record_batches import ENVELOPE
from changefeed.pipeline.source.spark import freeze_gc
from changefeed.runtime.light_event import LightEvent
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.settings import LogSettings

_log = get_logger()

NAME: Final = "changefeed_observer"
_PAGE: Final = 1000
WHOLE_RANGES: Final = str(2**62)
"""The option ``sliceChanges`` of the source, for tasks that read whole ranges."""
_CLOSE_TIMEOUT: Final = 10.0
_BATCH: Final = "streaming.sql.batchId"

# Kept for as long as the process, which Spark uses for one task after the other: in an
# outage that outlives batches, each change would else be the first under suspicion.
_successes = Successes()


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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        set_up_logs(self._log)
        epoch = self._epoch + 1 + int(_local_property(_BATCH) or 0)
        host = f"{socket.gethostname()}-{os.getpid()}"
        changes = (page for batch in iterator for page in pages(batch))
        work = delivered(self._settings, changes, host, epoch, origin=self._origin)
        with asyncio.Runner() as runner:
            run_main_task(runner, work)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: Spark itself records that the batch is done."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was delivered stays delivered, and comes again."""


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


async def delivered(
    settings: ObserverSettings,
    changes: Iterator[Sequence[Change]],
    host: str,
    epoch: int,
    *,
    origin: Origin,
) -> None:
    """Hand pages of one range after the other to the observer of each.

    Raise ``ObserverFailed`` if the settings say to stop then, and ``ObserverStuck``.
    """
    assert settings.name is not None, "checked where the query is started"
    observer = load_observer(settings.name, settings.options)
    failures = FailureLog(_log.bind(host=host, epoch=epoch))
    async with AsyncExitStack() as stack:
        letters = None
        if settings.on_failure == "dead-letter":
            letters = await stack.enter_async_context(open_dead_letters(settings.dead_letters))
        make = ObserverMaker(
            observer,
            settings,
            failures,
            Random(),  # noqa: S311 - spreads delays, guards nothing
            dead_letters=letters,
            origin=origin,
            successes=_successes,
        )
        rest = None if settings.on_failure == "stop" else settings.retry.max_delay
        for name, of_range in groupby(changes, lambda page: page[0].range_id):
            await _deliver(make, TaskRange(name, host, epoch), of_range, failures, rest)


class TaskRange:
    """A range in a task: what its observers are told, and what of it is not done. Nothing takes
    it away from the task.
    """

    handing_over = False

    def __init__(self, name: RangeId, host: str, epoch: int) -> None:
        self.range = FeedRange(id=name)
        self.host = host
        self.epoch = epoch
        self.open: dict[int, Change] = {}
        self._read_to = -1
        self.moved = LightEvent()

    def check(self) -> None:
        """Let everything pass."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def flush(self) -> None:
        """Do nothing: Spark keeps the positions."""

    def read(self, changes: Sequence[Change]) -> None:
        self.open |= {x.sequence: x for x in changes}
        self._read_to = changes[-1].sequence

    def was_read(self, change: Change) -> bool:
        return change.sequence <= self._read_to

    def is_open(self, change: Change) -> bool:
        return change.sequence in self.open

    def acknowledge(self, changes: Sequence[Change]) -> None:
        for x in changes:
            self.open.pop(x.sequence, None)
        self.moved.set()

    def returned(self, changes: Sequence[Change]) -> None:
        self.acknowledge(changes)

    def in_call(
        self, call: str, changes: Sequence[Change]
    ) -> AbstractAsyncContextManager[None]:
        """Bound nothing: Spark ends tasks."""
        del call, changes
        return nullcontext()


async def _deliver(
    make: ObserverMaker,
    found: TaskRange,
    pages: Iterator[Sequence[Change]],
    failures: FailureLog,
    rest: float | None,
) -> None:
    """Hand over the pages of a range. Observers on which everything fails are closed, and
    others are opened, after ``rest`` seconds if these could not be opened; without these,
    raise ``ObserverFailed``.
    """
    keys = make.keys_of(found.range.id, _PAGE)
    is_over = False
    while not is_over:
        observers = make.observers_of(found, keys, found.moved)
        try:
            async with _opened(observers, failures):
                await _hand_over(observers, found, pages)
                is_over = True
        except ObserverFailed as error:
            if rest is None:
                raise
            pause = rest if error.sequences is None else 0.0
            failures.observer_gave_up(found.range.id, error, pause)
            await found.sleep(pause)
            keys.restart(list(found.open.values()))


async def _hand_over(
    observers: RangeObservers, found: TaskRange, pages: Iterator[Sequence[Change]]
) -> None:
    """Return when all is done. Raise ``ObserverFailed`` where the observers are worn out."""
    while True:
        while found.open:
            found.moved.clear()
            given = await observers.give()
            if observers.worn_out is not None:
                raise observers.worn_out
            if not given:
                await observers.wait()
        page = next(pages, None)
        if page is None:
            return
        found.read(page)
        observers.keys.add(page)


@asynccontextmanager
async def _opened(observers: RangeObservers, failures: FailureLog) -> AsyncIterator[None]:
    """Open the observers of a range, and close them with the reason why the block is left;
    those that are stuck are not called any more.
    """
    try:
        try:
            await observers.open()
            yield
        finally:
            await observers.end()
    except ObserverStuck:
        raise
    except BaseException:
        await _close(observers, CloseReason.FAILED, failures)
        raise
    await _close(observers, CloseReason.STOPPING, failures)


async def _close(observers: RangeObservers, reason: CloseReason, failures: FailureLog) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await observers.close(reason)
    except Exception as error:  # noqa: BLE001 - the border to the user's code
        failures.close_failed(observers.context.range.id, error)


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
