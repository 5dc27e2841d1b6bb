"""Whatever users' code raises is a failure of the observer, and no end of a host."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

import changefeed.feeds.errors
import changefeed.leases.errors
import changefeed.observers.errors
import changefeed.runtime.errors
from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters.letter import failure_of
from changefeed.observers.error_text import kind_of
from changefeed.observers.errors import ObserverRaised
from changefeed.observers.middleware.boundary import ErrorBoundary
from changefeed.observers.middleware.timeout import TimeLimitedObserver
from changefeed.observers.observer import CloseReason
from tests.support.observing import RememberingContext, change
from tests.support.our_errors import OUR_ERRORS

CONTEXT = RememberingContext()


class PanicException(BaseException):
    """What an extension in Rust raises when it panics."""


class Unprintable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    PanicException("index out of bounds"),
    asyncio.CancelledError(),
    BaseExceptionGroup("several", [PanicException("one")]),
    Unprintable(),
    ValueError("plain"),
    *OUR_ERRORS,
]


def observer_that_raises(error: BaseException) -> Any:
    class Raising:
        async def open(self, _context: object) -> None:
            raise error

        async def process(self, _context: object, _changes: Sequence[Change]) -> None:
            raise error

        async def close(self, _context: object, _reason: CloseReason) -> None:
            raise error

    return Raising()


@pytest.mark.parametrize("error", RAISED, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.open(CONTEXT),
        lambda x: x.process(CONTEXT, [change(1)]),
        lambda x: x.close(CONTEXT, CloseReason.STOPPING),
    ],
    ids=["open", "process", "close"],
)
async def test_whatever_is_raised_comes_out_as_a_failure_of_the_observer(
    call: Callable[[ErrorBoundary], Any], error: BaseException
) -> None:
    with pytest.raises(ObserverRaised) as raised:
        await call(ErrorBoundary(observer_that_raises(error)))
    assert raised.value.__cause__ is error
    assert raised.value.kind == kind_of(error)
    letter = failure_of(raised.value)
    assert letter.kind == kind_of(error)
    assert letter.trace


@pytest.mark.parametrize(
    "module",
    [
        changefeed.feeds.errors,
        changefeed.leases.errors,
        changefeed.observers.errors,
        changefeed.runtime.errors,
    ],
)
def test_each_of_our_errors_is_among_those_that_are_raised_here(module: ModuleType) -> None:
    there_are = {x for x in vars(module).values() if isinstance(x, type)}
    errors = {x for x in there_are if issubclass(x, Exception)}
    assert errors <= {type(x) for x in OUR_ERRORS}


@pytest.mark.real_time
@pytest.mark.parametrize("error", RAISED, ids=lambda x: type(x).__name__)
async def test_what_a_plain_function_raises_in_its_thread_is_a_failure(
    error: BaseException,
) -> None:
    def process(_changes: Sequence[Change]) -> None:
        raise error

    observer = ErrorBoundary(adapt(process)())
    await observer.open(CONTEXT)
    with pytest.raises(ObserverRaised):
        await observer.process(CONTEXT, [change(1)])
    await observer.close(CONTEXT, CloseReason.STOPPING)


class Sleeping:
    async def open(self, _context: object) -> None:
        await asyncio.sleep(3600)


async def test_a_cancellation_of_ours_is_one() -> None:
    task = asyncio.ensure_future(ErrorBoundary(Sleeping()).open(CONTEXT))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_deadline_of_a_caller_is_no_failure_of_the_observer() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await ErrorBoundary(Sleeping()).open(CONTEXT)  # type: ignore[arg-type]


async def test_a_cancelled_error_of_the_observers_own_is_a_failure_within_a_time_limit() -> (
    None
):
    own = observer_that_raises(asyncio.CancelledError())
    limited = TimeLimitedObserver(ErrorBoundary(own), 60.0)
    with pytest.raises(ObserverRaised, match="CancelledError"):
        await limited.process(CONTEXT, [change(1)])


async def test_a_cancelled_error_after_a_failure_in_a_task_group_is_a_failure_as_well() -> None:
    boundary = ErrorBoundary(Grouping())  # type: ignore[arg-type]
    with pytest.raises(ObserverRaised, match="ExceptionGroup"):
        await boundary.process(CONTEXT, [])
    with pytest.raises(ObserverRaised, match="CancelledError"):
        await boundary.process(CONTEXT, [])


class Grouping:
    """Does two things at once, of which one fails; then it is cancelled by what it calls."""

    def __init__(self) -> None:
        self._failed = False

    async def process(self, _context: object, _changes: object) -> None:
        if self._failed:
            raise asyncio.CancelledError
        self._failed = True
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            group.create_task(self._fail())

    async def _fail(self) -> None:
        await asyncio.sleep(1)
        raise OSError


async def test_a_coroutine_that_is_thrown_away_ends_in_silence() -> None:
    call = ErrorBoundary(Sleeping()).open(CONTEXT)  # type: ignore[arg-type]
    call.send(None)
    with ThreadPoolExecutor(1) as elsewhere:  # where no event loop runs
        elsewhere.submit(call.close).result()
