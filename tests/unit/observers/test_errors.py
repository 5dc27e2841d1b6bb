"""What is behind an error, and what the log shows of it."""

import logging
from collections.abc import Callable

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.observers.errors import came_of
from changefeed.observers.failure_log import FailureLog
from changefeed.runtime.logs import get_logger
from tests.support.odd_errors import Opaque


def grouped() -> BaseException:
    return BaseExceptionGroup("tasks", [SystemExit(), ExceptionGroup("", [MemoryError()])])


def caused() -> BaseException:
    error = RuntimeError("cannot sort the batch")
    error.__cause__ = grouped()
    return error


def while_handling(*, hidden: bool = False) -> BaseException:
    error = KeyError("x")
    error.__context__ = MemoryError()
    error.__suppress_context__ = hidden
    return error


def around_in_a_circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize("make", [MemoryError, grouped, caused, while_handling])
def test_memory_that_is_missing_is_found_in_groups_and_behind_other_errors(
    make: Callable[[], BaseException],
) -> None:
    assert came_of(make(), MemoryError)


@pytest.mark.parametrize(
    "make",
    [
        ValueError,
        lambda: while_handling(hidden=True),
        around_in_a_circle,
        Opaque,
        lambda: ExceptionGroup("", [Opaque()]),
    ],
)
def test_memory_that_is_not_missing_is_not_found(make: Callable[[], BaseException]) -> None:
    assert not came_of(make(), MemoryError)


def test_the_log_shows_where_the_observer_failed_and_the_same_place_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    log = FailureLog(get_logger())
    for attempt, item in ((1, "a"), (2, "c"), (1, "a"), (1, "b")):
        try:
            int(item)
        except ValueError as error:
            log.observer_retrying(RangeId("r0"), attempt, error, 0.1)
    shown = [x.msg.get("exception", "") for x in caplog.records if isinstance(x.msg, dict)]
    assert [x[-3:] for x in shown] == ["'a'", "", "", "'b'"]
    assert __file__ in shown[0]
