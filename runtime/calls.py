"""Calls to other systems: they end in time, are cancelled when they are asked to be and only
then, whatever their client does, and a refusal of the server counts once it has lasted; and
several at the same time, none of which goes on when one has failed.

Some clients lose a cancellation: ``asyncio.wait_for`` of Python 3.11 does, where the answer
comes at the same moment. A loop around such a call would go on for ever, because a task is
cancelled once only. Others cancel by themselves, as when what they wait for was cancelled: a
loop around such a call would end without a word.

Code in the process may cancel tasks that it has not started, all that ``asyncio.all_tasks``
returns. What ends so has failed, and says so.

An account that is moved, a key that is being renewed, a proxy that starts again: servers
refuse a request once, and answer it a moment later. A host that ended for the first refusal
would take its fleet along, as all hosts ask the same server. So a refusal that a server has
*answered* counts as no answer at first, and is asked again like one. Only one that lasts
is told to a person.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable
from dataclasses import dataclass
from types import coroutine
from typing import Any, Final, TypeVar, overload

from changefeed.runtime.errors import Failure, UserError

T = TypeVar("T")
_SILENCE: Final = 60.0


def unexpected_cancellation(what: str, suspect: str) -> Failure:
    """Say that code has cancelled tasks that it had not started: ``what`` says which tasks,
    ``suspect`` whose code it may be.
    """
    return Failure(
        f"{what} was cancelled without a request to stop: check whether {suspect} cancels "
        f"tasks that it has not started, such as all of asyncio.all_tasks()"
    )


def _given_up() -> Exception:
    return Failure("a call was cancelled by what it called")


async def keep_cancellation(
    call: Awaitable[T], given_up: Callable[[], Exception] = _given_up
) -> T:
    """Await a call; raise ``CancelledError`` if its task was cancelled meanwhile, not else.

    What it returned or raised is lost then: whether it took effect is unclear. Raise
    ``given_up()`` if the call was cancelled by what it called.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine is awaited in a task"
    before = task.cancelling()
    try:
        result = await call
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise given_up() from error
    except Exception as error:
        if task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def in_time(
    call: Awaitable[T],
    seconds: float,
    *,
    who: str,
    name: str,
    unavailable: Callable[[str], Exception],
) -> T:
    """Await a call to ``who``; raise ``unavailable(text)`` after so many seconds, or if its
    client gave it up. A write may have happened, or may happen yet.

    What is answered from memory waits for nothing and cannot be late, so it has no timer.
    """
    assert seconds > 0, f"{name} has no time to be answered"

    def given_up() -> Exception:
        return unavailable(f"the client of {who} gave {name} up by itself")

    steps = call.__await__()
    try:
        try:
            waits_for = next(steps)
        except StopIteration as ended:
            answer: T = ended.value
            return answer
        except asyncio.CancelledError as error:  # nobody else has run meanwhile
            raise given_up() from error
        async with asyncio.timeout(seconds):
            return await keep_cancellation(_going_on(steps, waits_for), given_up)
    except TimeoutError as error:
        raise unavailable(f"{who} did not answer {name} within {seconds:g} s") from error


@coroutine
def _going_on(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a call that has begun, and waits."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - thrown into us, and meant for the call
            try:
                waits_for = steps.throw(error)
            except StopIteration as ended:
                answer: T = ended.value
                return answer
        else:
            return (yield from steps)


@dataclass(slots=True)
class _Refusals:
    """Since when there were only refusals, and when the last one came."""

    since: float
    last: float


class Patience:
    """Waits for ``seconds`` before it believes a refusal, for each kind of question.

    Between two questions may pass any time: where nobody has asked for a minute, the time
    begins anew.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._refusals: dict[Hashable, _Refusals] = {}

    async def ask(
        self, question: Hashable, call: Awaitable[T], unavailable: Callable[[str], Exception]
    ) -> T:
        """Await a call; raise ``unavailable(text)`` in the place of a refusal that may pass."""
        asked = asyncio.get_running_loop().time()
        try:
            answer = await call
        except UserError as refusal:
            if refusal.may_pass and not self._has_lasted(question, asked):
                raise unavailable(str(refusal)) from refusal
            raise
        self._refusals.pop(question, None)
        return answer

    def _has_lasted(self, question: Hashable, asked: float) -> bool:
        now = asyncio.get_running_loop().time()
        known = self._refusals.get(question)
        if known is None or asked - known.last > _SILENCE:
            known = self._refusals[question] = _Refusals(since=asked, last=now)
        known.last = now
        return now - known.since >= self._seconds


First = TypeVar("First")
Second = TypeVar("Second")
Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Coroutine[Any, Any, Result]


@overload
async def gather_or_cancel(
    first: Call[First], second: Call[Second], /
) -> tuple[First, Second]: ...


@overload
async def gather_or_cancel(*calls: Call[Result]) -> tuple[Result, ...]: ...


async def gather_or_cancel(*calls: Call[Any]) -> tuple[Any, ...]:
    """Await all calls; return what they return, in their order.

    The first that fails ends the others, and its error is raised when all have ended. What
    ``asyncio.gather`` leaves running then is bounded by no timeout, and what it holds, a lock
    or a connection, is missing to the next that asks. A ``TaskGroup`` leaves nothing running;
    but up to Python 3.12 a failure in it leaves a request to cancel in the task around it,
    which ``keep_cancellation`` cannot tell from one of the caller's.
    """
    tasks = [asyncio.create_task(x) for x in calls]
    try:
        return tuple(await keep_cancellation(asyncio.gather(*tasks)))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def for_each(
    items: Iterable[Item], call: Callable[[Item], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Await ``call(item)`` for all items, ``at_once`` at the same time; results in their order.

    The first call that fails ends the others, and its error is raised when all have ended.
    """
    assert at_once > 0, "nothing would ever be called"
    wanted = list(items)
    waiting = iter(enumerate(wanted))
    found: dict[int, Result] = {}

    async def some() -> None:
        for n, item in waiting:
            found[n] = await call(item)

    await gather_or_cancel(*(some() for _ in wanted[:at_once]))
    return [found[n] for n in range(len(wanted))]
