"""Whatever users' code raises is a failure of the observer, and no end of a host."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.call import CalledObserver
from changefeed.observers.dead_letters.letter import failure_of
from changefeed.observers.error_text import kind_of
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.observer import CloseReason
from tests.support import make
from tests.support.observers import Bare
from tests.support.odd_errors import Unprintable
from tests.support.our_errors import OUR_ERRORS

CONTEXT = make.context()


class PanicException(BaseException):
    """What an extension in Rust raises when it panics."""


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


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin in their turn")
async def test_a_call_begins_at_once_where_python_can_do_that() -> None:
    seen = list[str]()

    class Noting(Bare):
        async def process(self, *_: object) -> None:
            seen.append("called")

    asyncio.get_running_loop().call_soon(seen.append, "turn")
    await CalledObserver(Noting()).process(CONTEXT, [make.change(1)])
    assert seen == ["called"], "what never waits costs no turn of the event loop"


async def test_who_waits_for_a_call_goes_on_in_the_next_turn_once_it_has_returned() -> None:
    loop, seen = asyncio.get_running_loop(), list[str]()

    class Noting(Bare):
        async def process(self, *_: object) -> None:
            await asyncio.sleep(1)
            loop.call_soon(loop.call_soon, seen.append, "two turns later")

    await CalledObserver(Noting()).process(CONTEXT, [make.change(1)])
    assert seen == []


async def test_a_call_is_not_begun_if_its_lease_is_lost_before_its_turn_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, lost, called = asyncio.get_running_loop(), asyncio.Event(), list[bool]()

    class Noting(Bare):
        async def process(self, *_: object) -> None:
            called.append(lost.is_set())

    def check() -> None:
        if lost.is_set():
            raise ValueError("lost")
        loop.call_soon(lost.set)

    observer = CalledObserver(Noting(), check=check)
    await observer.process(CONTEXT, [make.change(1)])
    assert called == [False]
    call = asyncio.create_task(observer.process(CONTEXT, [make.change(1)]))
    await asyncio.wait((call,), timeout=0)
    await asyncio.sleep(0)
    call.cancel()  # what the fence says then is no failure of the observer
    await asyncio.wait((call,))
    assert called == [False]
    assert "observer failed" not in caplog.text
    with pytest.raises(ValueError, match="lost"):
        await observer.process(CONTEXT, [make.change(1)])


async def test_a_call_that_a_stranger_cancels_before_it_begins_has_failed() -> None:
    class Waiting(Bare):
        async def process(self, *_: object) -> None:
            await asyncio.sleep(1)

    call = asyncio.create_task(CalledObserver(Waiting()).process(CONTEXT, [make.change(1)]))
    others = asyncio.all_tasks()
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(AttemptFailed, match="CancelledError"):
            await call


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
        lambda x: x.process(CONTEXT, [make.change(1)]),
        lambda x: x.close(CONTEXT, CloseReason.STOPPING),
    ],
    ids=["open", "process", "close"],
)
async def test_whatever_is_raised_comes_out_as_a_failure_of_the_observer(
    call: Callable[[CalledObserver], Any], error: BaseException
) -> None:
    with pytest.raises(AttemptFailed) as raised:
        await call(CalledObserver(observer_that_raises(error)))
    assert raised.value.__cause__ is error
    assert raised.value.kind == kind_of(error)
    letter = failure_of(raised.value)
    assert letter.kind == kind_of(error)
    assert letter.trace


@pytest.mark.real_time
@pytest.mark.parametrize("error", RAISED, ids=lambda x: type(x).__name__)
async def test_what_a_plain_function_raises_in_its_thread_is_a_failure(
    error: BaseException,
) -> None:
    def process(_changes: Sequence[Change]) -> None:
        raise error

    observer = CalledObserver(adapt(process)())
    await observer.open(CONTEXT)
    with pytest.raises(AttemptFailed):
        await observer.process(CONTEXT, [make.change(1)])
    await observer.close(CONTEXT, CloseReason.STOPPING)


class Sleeping(Bare):
    async def open(self, _context: object) -> None:
        await asyncio.sleep(3600)

    async def process(self, _context: object, _changes: object) -> None:
        await asyncio.sleep(3600)


class Calling(Bare):
    """Does with each batch what it was made for."""

    def __init__(self, *calls: Callable[[], Awaitable[None]]) -> None:
        self._calls = list(calls)

    async def open(self, _context: object) -> str:  # type: ignore[override]
        await self._calls.pop(0)()
        return "7"

    async def process(self, _context: object, _changes: object) -> None:
        await self._calls.pop(0)()


def at_the_same_moment(seconds: float) -> tuple[asyncio.Future[None], Calling]:
    """Return what an observer waits for, which comes just before anything else that is due."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    loop.call_later(seconds, arrived.set_result, None)

    async def wait() -> None:
        await arrived

    return arrived, Calling(wait)


async def test_a_call_that_has_returned_when_its_time_is_over_has_done_its_work() -> None:
    arrived, observer = at_the_same_moment(10)
    await CalledObserver(observer, seconds=10).process(CONTEXT, [])
    assert arrived.done()
    _, observer = at_the_same_moment(10)
    async with asyncio.timeout(10):
        assert await CalledObserver(observer).open(CONTEXT) == "7"
    await asyncio.sleep(1)  # nothing is left of the timeout


async def test_who_is_cancelled_when_a_call_has_returned_is_cancelled_behind_it() -> None:
    reached: list[str] = []
    _, observer = at_the_same_moment(10)

    async def deliver() -> None:
        await CalledObserver(observer).process(CONTEXT, [])
        reached.append("counted")
        await asyncio.sleep(0)
        reached.append("went on")

    task = asyncio.ensure_future(deliver())
    await asyncio.sleep(10)  # it has returned, and its caller is not back yet
    task.cancel()
    await asyncio.wait((task,))
    assert (task.cancelled(), reached) == (True, ["counted"])


@pytest.mark.real_time
def test_a_call_whose_loop_is_thrown_away_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it says that a task was pending
    call = loop.create_task(CalledObserver(Sleeping()).open(CONTEXT))
    for _ in range(2):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    del call, loop
    gc.collect()
    assert said == []
