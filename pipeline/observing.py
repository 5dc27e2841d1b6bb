"""Observers on Spark executors: a query that hands each of its batches to observers.

A task has whole ranges (the source must not cut them into slices: ``_WHOLE_RANGES``), one
after the other. For each it makes an observer, opens it, hands it the changes in order,
and closes it. So an observer lives for one batch, not for as long as a lease. It is called
as a host calls it: with retries, a time limit, concurrent keys, dead letters.

Delivery is at least once. A task that fails is tried again by Spark, and a batch after a
crash, each from its beginning: (range, sequence) identifies a repeat. Within a task only
what is not done comes again.

Spark keeps the positions. What hosts before it have done behind theirs is passed over. What
the context is told is done does not come again to this task; ``flush`` has nothing to do.
The epoch is the number of the batch, from 1 on, counted from that of the hosts before. It
fences off tasks of earlier batches that Spark took for dead; two attempts at one batch have
the same.

Limits: all ranges wait for the slowest of a batch, and for one whose observer fails. Dead
letters are written where the task runs; in an outage, each worker process of Spark may put
a change of a range aside on suspicion. What a task retries or puts aside is in its
executor's log.
"""

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.leases.checkpoint import Checkpoint, covers
from changefeed.observers.call import Call
from changefeed.observers.dead_letters import Origin, open_dead_letters
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Successes
from changefeed.observers.observer import CloseReason
from changefeed.observers.range_observers import ObserverSetup, RangeObservers
from changefeed.observers.registry import load_observer
from changefeed.pipeline.settings import OBSERVER, ObserverSettings, PipelineSettings
from changefeed.pipeline.source.addresses import identity_at
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.source.kept_access import freeze_gc
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.supervisor import started
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.settings import LogSettings

_log = get_logger()

_PAGE: Final = 1000
_CLOSE_TIMEOUT: Final = 10.0
_WHOLE_RANGES: Final = str(2**62)
"""The option ``sliceChanges`` of the source, for tasks that read whole ranges."""

# Kept for as long as the process, which Spark uses for one task after the other: in an
# outage that outlives batches, each change would else be the first under suspicion.
_successes = Successes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """The query of an observer. ``once``: deliver what is there now, then end."""

    spark: SparkSession
    settings: PipelineSettings
    hold: DrainGate
    start: Offset
    once: bool = False

    def started(self) -> StreamingQuery:
        settings = self.settings
        changes = stream(
            self.spark,
            settings.feed,
            startingAt=self.start.as_text(),
            maxChangesPerBatch=str(settings.max_changes),
            holdFile=self.hold.file(OBSERVER),
            sliceChanges=_WHOLE_RANGES,
        )
        checkpoint = settings.checkpoint(OBSERVER)
        feed, observer = identity_at(settings.feed), settings.observer
        origin = Origin(feed=feed, observer=observer.name or "", fleet=checkpoint)
        epoch = self.start.epoch + 1

        def deliver(batch: DataFrame, number: int) -> None:
            task = Task(
                settings=observer,
                log=settings.log,
                origin=origin,
                epoch=epoch + number,
                done=self.start.done,
            )
            batch.mapInArrow(task, "nothing INT").write.format("noop").mode("append").save()

        return started(
            changes.writeStream.foreachBatch(deliver),
            OBSERVER,
            checkpoint=checkpoint,
            interval=None if self.once else 0.0,  # one batch after the other
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Delivers what a task has of a batch. Pickled to get there, so it carries values only."""

    settings: ObserverSettings
    log: LogSettings
    origin: Origin
    epoch: int
    done: Mapping[RangeId, Checkpoint] = field(default_factory=dict)
    """What hosts had done of a range before, behind the position that it begins at."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        set_up_logs(self.log)
        with asyncio.Runner() as runner:
            run_main_task(runner, self.deliver(page for x in batches for page in pages(x)))
        return iter(())

    async def deliver(self, changes: Iterator[Sequence[Change]]) -> None:
        """Hand pages of one range after the other to the observer of each.

        Raise ``ObserverFailed`` if the settings say to stop then, and ``ObserverStuck``.
        """
        settings, host = self.settings, f"{socket.gethostname()}-{os.getpid()}"
        assert settings.name is not None, "checked where the query is started"
        failures = FailureLog(_log.bind(host=host, epoch=self.epoch))
        async with AsyncExitStack() as stack:
            letters = None
            if settings.on_failure == "dead-letter":
                opened = open_dead_letters(settings.dead_letters)
                letters = LetterWriter(await stack.enter_async_context(opened), self.origin)
            setup = ObserverSetup(
                load_observer(settings.name, settings.options),
                settings,
                failures,
                Random(),  # noqa: S311 - spreads delays, guards nothing
                letters=letters,
                successes=_successes,
            )
            for name, of_range in groupby(changes, lambda page: page[0].range_id):
                found = TaskRange(name, host, self.epoch, setup)
                await _deliver(found, _without(self.done.get(name), of_range))


class TaskRange:
    """A range in a task: what its observers are told, and what of it is not done. Nothing takes
    it away from the task.
    """

    handing_over = False
    reset_epoch = 0

    def __init__(self, name: RangeId, host: str, epoch: int, setup: ObserverSetup) -> None:
        self.range = FeedRange(id=name)
        self.host = host
        self.epoch = epoch
        self.open: dict[int, Change] = {}
        self._read_to = -1
        self.observers = RangeObservers(setup, self, _PAGE)

    def check(self) -> None:
        """Let everything pass."""

    async def flush(self) -> None:
        """Do nothing: Spark keeps the positions."""

    def read(self, changes: Sequence[Change]) -> None:
        self.open |= {x.sequence: x for x in changes}
        self._read_to = changes[-1].sequence
        self.observers.keys.add(changes)

    def begin(self, at: str) -> None:
        """Stay here: Spark has the positions."""

    def restart(self) -> None:
        self.observers.keys.restart(list(self.open.values()))

    def checkpoint_with(self, _: object) -> None:
        """Say that nothing keeps it: Spark has the positions."""

    def was_read(self, change: Change) -> bool:
        return change.sequence <= self._read_to

    def is_open(self, change: Change) -> bool:
        return change.sequence in self.open

    def acknowledge(self, changes: Sequence[Change]) -> None:
        for x in changes:
            self.open.pop(x.sequence, None)
        self.observers.moved.set()

    def returned(self, changes: Sequence[Change]) -> None:
        self.acknowledge(changes)

    async def in_call(self, name: str, changes: Sequence[Change], call: Call) -> None:
        """Bound nothing: Spark ends tasks."""
        del name, changes
        await call(None)


def _without(
    done: Checkpoint | None, pages: Iterator[Sequence[Change]]
) -> Iterator[Sequence[Change]]:
    """Return the pages of a range without what is done."""
    if done is None or done.high is None:
        yield from pages
        return
    holes = {x.key: x for x in done.holes}
    for page in pages:
        if left := [x for x in page if not covers(done.high, holes, x)]:
            yield left


async def _deliver(found: TaskRange, pages: Iterator[Sequence[Change]]) -> None:
    """Hand over the pages of a range, one after the other."""
    observers, reason = found.observers, CloseReason.FAILED
    async with observers.opened(lambda: reason):
        for page in pages:
            found.read(page)
            while found.open:
                observers.moved.clear()
                if not await observers.give():
                    await observers.wait()
        reason = CloseReason.STOPPING


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
