"""Run the queries of a pipeline until it is stopped.

A query that failed because the feed did not answer is restarted, after a delay that grows;
so is one of which Spark has lost a Python process, a few times in a row (``spark_errors``).
Any other failure ends the pipeline: a table that silently stops growing is worse.

To stop, no batch begins any more, and running ones may end (see ``source.drain``) for as
long as ``stop_timeout``. A batch that is broken off then, or by a second request to stop,
is repeated at the next start.
"""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.spark_errors import (
    TRIES,
    delay_after,
    try_again,
    worker_lost_reason,
)
from changefeed.runtime.errors import Failure, Unavailable, UserError
from changefeed.runtime.logs import get_logger

_log = get_logger()

_LOOK_INTERVAL: Final = 0.25
_REST_INTERVAL: Final = 0.05
_LAST_STEPS: Final = 10  # seconds, for what Spark does when a query has ended
STOP_TIMEOUT: Final = 25.0
_ADVICE = re.compile(r"^((?:\w+\.)+\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback. The lines of its causes come before it and look alike."""

Starter = Callable[[], StreamingQuery]
Filler = Callable[[], StreamingQuery | None]
"""Starts a query that brings a far table nearer and ends; none, if it is not far behind."""


def _nothing() -> None:
    """There is nothing to fill."""


@dataclass(kw_only=True)
class _RunningQuery:
    """One table: how to start its query, and the query that runs, or when to start one.

    ``filled``: nothing is to be filled any more, so the query is the one that goes on.
    """

    name: str
    start: Starter
    fill: Filler
    filled: bool = False
    query: StreamingQuery | None = None
    failures: int = 0  # since the last batch
    due: float = 0.0
    done: bool = False

    def begin(self) -> StreamingQuery:
        """Start what comes next: a query that fills the table, or the one after it."""
        found = None if self.filled else self.fill()
        self.filled = found is None
        return self.start() if found is None else found

    @property
    def runs(self) -> bool:
        return self.query is not None and self.query.isActive


def started(
    writer: DataStreamWriter, name: str, *, checkpoint: str, interval: float | None
) -> StreamingQuery:
    """Start a query that begins a batch every ``interval`` seconds at the most.

    Without an interval it takes in what is there now, and ends.
    """
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    if interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds").start()


def keep_running(
    starters: Mapping[str, Starter],
    stop: Stopping,
    hold: DrainGate,
    *,
    progress: TableProgress,
    fillers: Mapping[str, Filler],
    stop_timeout: float = STOP_TIMEOUT,
    tries: int | None = None,
    look: Callable[[], None] = lambda: None,
    failed: Callable[[str], None] = lambda _: None,
) -> None:
    """Run queries until asked to stop, or until all have ended by themselves.

    ``hold`` is what the queries were made with. ``progress`` learns which queries wait for
    their feed, and ``look`` is called now and then. ``failed`` is called with the name of a
    query that did not even start. ``tries`` is how often in a row a feed may
    be away for one query; without it there is no limit. ``fillers`` are asked first, at the
    start and after a failure: what one starts has ended before the query of its table begins.
    No query runs when this returns. Raise ``Failure`` if one cannot go on,
    and ``UserError`` if a later start helps only after a person has changed something.
    """
    kept = [
        _RunningQuery(
            name=name,
            start=partial(try_again, start, stop, partial(failed, name)),
            fill=partial(try_again, fillers.get(name, _nothing), stop, partial(failed, name)),
        )
        for name, start in starters.items()
    ]
    try:
        while not stop.asked and not all(x.done for x in kept):
            for one in kept:
                _look(one, progress, stop.now(), tries)
            look()
            stop.wait(_LOOK_INTERVAL)
        _come_to_rest(kept, stop, hold, stop_timeout)
        for one in kept:
            if one.query is not None:
                _look(one, progress, stop.now(), tries)  # it may have failed meanwhile
    finally:
        for one in kept:
            if one.query is not None:
                one.query.stop()


def _look(one: _RunningQuery, progress: TableProgress, now: float, tries: int | None) -> None:
    if one.done or (one.query is None and now < one.due):
        return
    if one.query is None:
        one.query = one.begin()
        progress.started(one.name)
        _log.info("query.started", table=one.name)
        return
    if one.query.isActive:
        if one.query.lastProgress is not None:
            one.failures = 0
        return
    failure = one.query.exception()
    if failure is None and not one.filled:
        one.query.awaitTermination(_LAST_STEPS)  # Spark refuses two queries of one name
        one.query, one.filled = None, True
        return
    if failure is None:
        one.done = True
        return
    kind, reason, most = advice(str(failure), tries)
    one.failures += 1
    if most is not None and one.failures >= most:
        failed = UserError if issubclass(kind, UserError) else Failure
        raise failed(f"the table {one.name!r} cannot be kept: {reason}") from failure
    delay = delay_after(one.failures)
    _log.warning("query.failed", table=one.name, error=reason, again_after=delay)
    progress.waits(one.name, reason)
    one.query, one.due, one.filled = None, now + delay, False


def _come_to_rest(
    kept: list[_RunningQuery], stop: Stopping, hold: DrainGate, stop_timeout: float
) -> None:
    """Wait until no query is in a batch, for a limited time."""
    working = [x for x in kept if x.runs]
    if not working:
        return
    _log.info("pipeline.stopping", tables=[x.name for x in working], budget=stop_timeout)
    for one in working:
        hold.begin(one.name)
    give_up = stop.now() + stop_timeout
    while working and not stop.at_once and stop.now() < give_up:
        working = [x for x in working if x.runs and not _rests(x, hold)]
        if working:
            stop.wait(_REST_INTERVAL)
    for one in working:
        _log.warning(
            "query.failed",
            table=one.name,
            error="a batch was broken off",
            advice="it is repeated at the next start",
        )


def _rests(one: _RunningQuery, hold: DrainGate) -> bool:
    """Say whether no batch runs and none will: one that would begin meets the hold."""
    assert one.query is not None, "it runs"
    return hold.noticed(one.name) or not one.query.status["isTriggerActive"]


def advice(text: str, tries: int | None = None) -> tuple[type[Exception], str, int | None]:
    """Return what our own error was, and said, from within all that Spark says around it; and
    after how many failures in a row to give up.

    Spark passes on only the text of an error: its class is looked up by its full name. A
    Python process that it has lost may never start, so that is not tried without an end.
    """
    for path, said in reversed(_ADVICE.findall(text)):
        if (kind := _known_error(path)) is not None:
            return kind, said.strip(), tries if issubclass(kind, Unavailable) else 1
    if (reason := worker_lost_reason(text)) is not None:
        return Failure, reason, TRIES if tries is None else min(tries, TRIES)
    return Failure, text.strip().splitlines()[0], 1


def _known_error(path: str) -> type[Exception] | None:
    module, _, name = path.rpartition(".")
    if module.startswith("changefeed."):  # raised in another process: not imported here yet
        with suppress(ImportError):
            import_module(module)
    kind = getattr(sys.modules.get(module), name, None)
    known = isinstance(kind, type) and issubclass(kind, UserError | Failure)
    return kind if known else None
