"""What Spark loses on a busy machine, and finds when it tries again.

Spark gives a Python process ten seconds to start and connect, which no setting changes. One
that comes too late fails the query, or the question what columns the source has. It was
never asked anything, so asking again is safe: a few times, since a Python that never starts
looks the same.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar

from changefeed.pipeline.shutdown import Stopping
from changefeed.runtime.errors import Failure
from changefeed.runtime.logs import get_logger

T = TypeVar("T")
_log = get_logger()

TRIES: Final = 5
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0
_LOST: Final = re.compile(
    r"Python worker failed to connect back|"
    r"EOFException occurred while reading the port number from|"
    r"Python worker exited unexpectedly"
)


def worker_lost_reason(text: str) -> str | None:
    """Return what Spark says of a process that it has lost, if it is that."""
    found = _LOST.search(text)
    if found is None:
        return None
    end = text.find("\n", found.start())
    said = text[found.start() : end if end >= 0 else None].strip().rstrip(".")
    return f"Spark has lost one of its Python processes: {said}. Is the machine overloaded?"


def delay_after(failures: int) -> float:
    """Return how many seconds to wait after so many failures in a row."""
    return min(_FIRST_DELAY * 2.0 ** min(failures - 1, 10), _MAX_DELAY)


def try_again(
    call: Callable[[], T], stop: Stopping, failed: Callable[[], None] = lambda: None
) -> T:
    """Return what ``call`` returns, which is called again if Spark loses a process.

    ``failed`` is called each time. The last time, and once a stop is asked for, the error
    is raised: as ``Failure``.
    """
    for failures in range(1, TRIES + 1):
        try:
            return call()
        except Exception as error:
            reason = worker_lost_reason(str(error))
            if reason is None:
                raise
            failed()
            if failures == TRIES or stop.asked:
                raise Failure(reason) from error
            delay = delay_after(failures)
            _log.warning("query.failed", error=reason, again_after=delay)
            stop.wait(delay)
    raise AssertionError("the last try returns or raises")
