"""Keeping the queries of a pipeline alive until somebody stops them.

A query that failed because the feed did not answer is started again, after a delay that
grows. Any other failure ends the pipeline: a table that silently stands still is worse.
Stopping takes a query in mid-batch; the batch is repeated at the next start.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from .errors import QueryFailed

_log = structlog.get_logger(__name__)

_LOOK_INTERVAL: Final = 0.25
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0
_ADVICE = re.compile(r"(?:FeedRefused|FeedUnavailable|PipelineRefused): (.+?)(?:\n|$)")

Starter = Callable[[], StreamingQuery]


@dataclass(kw_only=True)
class _Kept:
    """One table: how to start its query, and the query that runs, or when to start one."""

    name: str
    start: Starter
    query: StreamingQuery | None = None
    delay: float = _FIRST_DELAY
    due: float = 0.0
    done: bool = field(default=False)


def keep_running(
    starters: Mapping[str, Starter],
    stop: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run queries until ``stop`` is set, or until all have ended by themselves.

    Raise ``QueryFailed`` if one cannot go on. No query runs when this returns.
    """
    kept = [_Kept(name=name, start=start) for name, start in starters.items()]
    try:
        while not stop.is_set() and not all(x.done for x in kept):
            for one in kept:
                _look(one, clock())
            stop.wait(_LOOK_INTERVAL)
    finally:
        for one in kept:
            if one.query is not None:
                one.query.stop()


def _look(one: _Kept, now: float) -> None:
    if one.done or (one.query is None and now < one.due):
        return
    if one.query is None:
        one.query = one.start()
        _log.info("table is kept", table=one.name)
        return
    if one.query.isActive:
        if one.query.lastProgress is not None:
            one.delay = _FIRST_DELAY
        return
    failure = one.query.exception()
    if failure is None:
        one.done = True
        return
    reason = advice(failure)
    if "FeedUnavailable" not in str(failure):
        raise QueryFailed(one.name, reason) from failure
    _log.warning("feed did not answer", table=one.name, reason=reason, again_in=one.delay)
    one.query, one.due = None, now + one.delay
    one.delay = min(one.delay * 2, _LONGEST_DELAY)


def advice(failure: StreamingQueryException) -> str:
    """Return what our own error said, from within all that Spark says around it."""
    text = str(failure)
    found = _ADVICE.search(text)
    return found[1].strip() if found else text.strip().splitlines()[0]
