"""One call of the user's code: fenced, in a task of its own, in its time, and contained.

The fence is asked before *every* call, in the task of the call: between two attempts a lease
may be lost, and a process may have been frozen for longer than its lease lived, also between
two turns of its event loop. A wrapper that waits does it through the fence as well.

What the user's code raises goes no further than here: outside it is an ``AttemptFailed``.
Everything but a cancellation of ours is a failure of the observer, to be tried again, isolated
and put aside like any other: ``SystemExit`` of a library that calls ``sys.exit``,
``KeyboardInterrupt``, ``GeneratorExit``, the panics of extensions in Rust, and a
``CancelledError`` that comes from the user's own tasks. So are our own errors, which mean
something else where we raise them: an observer may call our clients, and raise what it likes.
What it prints and nobody reads any more (``changefeed run | head``) ends its process instead.
No other layer has to look at an object of the user's, which may not even let itself be printed.

A cancellation from outside the task of a call is ours; if the task ends cancelled without one,
that is the observer's doing: ``asyncio.current_task().cancel()``, a library that cancels to end
a wait, what a ``TaskGroup`` leaves behind. Ours are passed on, and the call is waited for until
it has ended. What it makes of them is no success: it may have swallowed one with its work half
done. But a call that had returned when we were cancelled, as after the process was stopped for
a while, has done its work. Who cancels several times more has stopped waiting for the call to
end: it is left behind.

A call that takes too long is cancelled, and the attempt fails like any other. A plain call
cannot be cancelled: ``adapt`` waits until it has ended in its thread, or gives it up at the
second cancellation. What has not ended after a grace of some seconds is left behind, and
``ObserverStuck`` says so: it is not known what it still does. A call that we have cancelled has
what is left of its time, and the grace.

Limits: what is bound to a task does not last from one call to the next, as a cancel scope of
anyio or a context variable. A task that the user's code starts by itself is not called from
here. If that raises ``SystemExit`` or ``KeyboardInterrupt``, asyncio ends the event loop with
it; processes of ours run theirs on (``runtime/main_task.py``). An async observer that blocks
the event loop stops the clock of its time limit, too.
"""

import asyncio
import concurrent.futures
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from changefeed.feeds.feed import Change, FeedRange
from changefeed.observers.error_text import kind_of, log_late_error, text_of
from changefeed.observers.errors import AttemptFailed, ObserverStuck, came_of
from changefeed.observers.observer import CloseReason, Context, Observer
from changefeed.runtime.light_event import LightEvent
from changefeed.runtime.shutdown import output_is_unread

_MAX_GRACE = 5.0
_WAITS_FOR_AN_END = 3
"""How often we are cancelled, before a call that does not end is left behind."""

_Code = Callable[[], Awaitable[Any]]
"""A call of the user's code that is yet to be made."""


class Blame(NamedTuple):
    """A change with which so many processes have ended, and that in words."""

    times: int
    reason: str

    def refusal(self, change: Change) -> str:
        """Return the advice for a range that pauses where no dead letters are set."""
        return (
            f"the change at sequence {change.sequence} {self.reason}. Mend the observer, or "
            f"let the change be put aside (observer.on_failure = 'dead-letter'), and resume "
            f"the range"
        )


Call: TypeAlias = Callable[[Blame | None], Awaitable[None]]


class RangeContext(Protocol):
    """Who reads the range of some observers: what they are told of it, whether they may be
    called, and what is done.
    """

    range: FeedRange
    host: str
    epoch: int
    reset_epoch: int

    @property
    def handing_over(self) -> bool: ...

    def check(self) -> None:
        """Raise what ends the calls if nothing may be delivered any more."""
        ...

    async def in_call(self, name: str, changes: Sequence[Change], call: Call) -> None:
        """Make a call of an observer, with why a change that comes alone is not to be given
        to it.
        """
        ...

    def begin(self, at: str) -> None:
        """Go on where an observer says that the range is, in words of ``checkpoint_with``."""
        ...

    def restart(self) -> None:
        """Have all that is not done handed over again: no observer has any of it."""
        ...

    def checkpoint_with(self, changes: Sequence[Change]) -> str | None:
        """Return what is done once these are; ``None`` where that is not kept."""
        ...

    def was_read(self, change: Change) -> bool: ...

    def is_open(self, change: Change) -> bool:
        """Whether it is read, and not done."""
        ...

    def acknowledge(self, changes: Sequence[Change]) -> None:
        """Count changes as done, because the observer says so."""
        ...

    def returned(self, changes: Sequence[Change]) -> None:
        """Count changes as done, because the observer has returned from them."""
        ...

    async def flush(self) -> None:
        """Wait until what is done is stored."""
        ...


class CalledObserver:
    """Calls ``observer``. ``open`` and ``process`` ask ``check`` first, which raises where
    nothing may be delivered any more, and have so many ``seconds``; who calls ``close`` bounds
    that.

    Raise ``AttemptFailed`` for whatever the observer raises, and if a call
    was ended at the end of its time, and ``ObserverStuck`` if it could not be: the observer
    must then not be called any more.
    """

    def __init__(
        self,
        observer: Observer,
        *,
        check: Callable[[], None] = lambda: None,
        seconds: float | None = None,
    ) -> None:
        self._observer = observer
        self._check = check
        self._seconds = seconds

    async def open(self, context: Context) -> str | None:
        code = partial(self._observer.open, context)
        begins: str | None = await _call("open", context, code, self._seconds, self._check)
        return begins

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        code = partial(self._observer.process, context, changes)
        await _call("process", context, code, self._seconds, self._check)

    async def put_aside(self, context: Context, change: Change) -> None:
        """Tell an observer that wants to know."""
        tell = getattr(self._observer, "put_aside", None)
        if tell is not None:
            code = partial(tell, context, change)
            await _call("put_aside", context, code, self._seconds, self._check)

    async def close(self, context: Context, reason: CloseReason) -> None:
        code = partial(self._observer.close, context, reason)
        await _call("close", context, code, None, lambda: None)


async def _call(
    name: str,
    context: Context,
    code: _Code,
    seconds: float | None,
    check: Callable[[], None],
) -> Any:
    caller = asyncio.current_task()
    assert caller is not None, "a coroutine is awaited in a task"
    loop, requests = asyncio.get_running_loop(), caller.cancelling()
    began = loop.time()
    # At once where Python can, so that what never waits costs no turn.
    eager: Any = {"eager_start": True} if sys.version_info >= (3, 12) else {}
    over = LightEvent()
    task = asyncio.Task(_contained(code, over, check), loop=loop, **eager)
    try:
        if not task.done():
            task.add_done_callback(over.set)  # where it raises, or never begins
            # ``asyncio.wait`` does the same in two turns of the loop and a dozen calls.
            await (over.wait() if seconds is None else asyncio.wait((task,), timeout=seconds))
    except asyncio.CancelledError:
        if _has_returned(task):
            _cancel_later(caller, above=requests)
            return task.result()
        await _end(task, name, context, seconds, began)
        raise
    if not task.done():
        assert seconds is not None, f"{name!r} is waited for until it has ended"
        await _end(task, name, context, seconds, began)
        raise AttemptFailed.after(name, seconds)
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise _raised(error) from error


async def _end(
    task: "asyncio.Task[Any]", name: str, context: Context, seconds: float | None, began: float
) -> None:
    """Cancel a call, and wait for its end. Raise ``ObserverStuck`` if that does not come."""
    task.add_done_callback(_log_late_failure)
    if seconds is None:
        await _cancel(task, None)
        return
    longest = seconds + min(_MAX_GRACE, seconds)
    await _cancel(task, began + longest)
    if not task.done():
        raise ObserverStuck(context.range.id, name, longest)


def _log_late_failure(task: "asyncio.Task[Any]") -> None:
    """Write what the observer raised to the log; that it was not called is no failure."""
    if not task.cancelled() and isinstance(task.exception(), AttemptFailed):
        log_late_error(task)


async def _cancel(
    task: "asyncio.Task[Any]", until: float | None, waits: int = _WAITS_FOR_AN_END
) -> None:
    """Cancel it, again each time that we are, and wait until it has ended, or until then.

    The last time that we are cancelled, we do not wait for it any more.
    """
    task.cancel()
    if not waits:
        return
    left = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
    try:
        await asyncio.wait((task,), timeout=left)
    except asyncio.CancelledError:
        await _cancel(task, until, waits - 1)
        raise
    task.cancel()  # once more, where it has not ended


def _has_returned(task: "asyncio.Task[Any]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _cancel_later(caller: "asyncio.Task[object]", *, above: int) -> None:
    """Cancel the caller again once it goes on, if it still is to be cancelled by then: a
    timeout that is left meanwhile takes its request back.
    """

    def cancel_again() -> None:
        if caller.cancelling() > above:
            caller.cancel()
            caller.uncancel()  # it is the same request, which a timeout counts once

    asyncio.get_running_loop().call_soon(cancel_again)


async def _contained(call: _Code, over: LightEvent, check: Callable[[], None]) -> Any:
    """Run it, if it may be run yet. No task may end with what ends an event loop, such as
    ``SystemExit``.
    """
    task = asyncio.current_task()
    check()
    try:
        result = await call()
    except BaseException as error:
        thrown_away = isinstance(error, GeneratorExit) and not _is_running(task)
        if thrown_away or isinstance(error, asyncio.CancelledError):
            raise
        raise _raised(error) from error
    over.set()
    return result


def _raised(error: BaseException) -> Exception:
    if came_of(error, BrokenPipeError) and output_is_unread():
        return BrokenPipeError("nobody reads standard output any more")
    return AttemptFailed(kind_of(error), text_of(error))


def _is_running(task: "asyncio.Task[Any] | None") -> bool:
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False


_sequence = attrgetter("sequence")
_KEPT = 16  # batches that are done and not forgotten yet


class ObserverContext:
    """What one observer may say of the changes that it was given, from any thread.

    What lies before a change may be another observer's, may wait, or may have failed. So to
    checkpoint a change acknowledges what this observer was given up to it and has not failed
    on, and counts for no change that was given again after it: that one is in hand.
    """

    def __init__(self, context: RangeContext) -> None:
        self.range: FeedRange = context.range
        self.host: str = context.host
        self.epoch: int = context.epoch
        self.reset_epoch: int = context.reset_epoch
        self.flush = context.flush
        self._context = context
        self._given: dict[int, Sequence[Change]] = {}
        self._number = 0
        self._most = _KEPT
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._closed = False

    @property
    def handing_over(self) -> bool:
        return self._context.handing_over

    # what is given

    def give(self, changes: Sequence[Change]) -> None:
        """Let what the observer says count for these, from now on."""
        assert changes, "an empty batch is nothing to checkpoint"
        self._number += 1
        if len(self._given) >= self._most:
            given, is_open = self._given.items(), self._context.is_open
            self._given = {n: x for n, x in given if any(map(is_open, x))}
            self._most = _KEPT + 2 * len(self._given)
        self._given[self._number] = changes

    def forget(self) -> None:
        """Let no checkpoint count for what was given last, or is left of it: it is done, or
        the observer has failed on it.
        """
        self._given.pop(self._number, None)

    def close(self) -> None:
        """Count nothing more that the observer says."""
        self._closed = True

    def checkpoint_with(self, changes: Sequence[Change]) -> str | None:
        if threading.get_ident() == self._thread:
            return self._context.checkpoint_with(changes)
        said = concurrent.futures.Future[str | None]()
        self._loop.call_soon_threadsafe(self._answer, said, changes)
        return said.result()

    def _answer(
        self, said: "concurrent.futures.Future[str | None]", changes: Sequence[Change]
    ) -> None:
        try:
            said.set_result(self._context.checkpoint_with(changes))
        except Exception as error:  # noqa: BLE001 - raised in the thread that has asked
            said.set_exception(error)

    # what is said

    def acknowledge(self, change: Change) -> None:
        self._say(change, up_to=False)

    def checkpoint(self, change: Change) -> None:
        self._say(change, up_to=True)

    def _say(self, change: Change, *, up_to: bool) -> None:
        of_this = change.range_id in {self.range.id, self.range.whole}
        if not (of_this and self._context.was_read(change)):
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        count = self._count_up_to if up_to else self._count
        if threading.get_ident() == self._thread:
            count(change, self._number)
        else:
            self._loop.call_soon_threadsafe(partial(count, change, self._number))

    def _count(self, change: Change, _: int) -> None:
        if not self._closed:
            self._context.acknowledge([change])

    def _count_up_to(self, change: Change, number: int) -> None:
        """Count for the batches up to the last one that had the change by then."""
        given = self._given.items()
        last = max((n for n, x in given if n <= number and _has(x, change)), default=0)
        done, left = list[Sequence[Change]](), dict[int, Sequence[Change]]()
        for n, changes in given:
            cut = bisect_right(changes, change.sequence, key=_sequence) if n <= last else 0
            if cut:
                done.append(changes[:cut])
            if cut < len(changes):
                left[n] = changes[cut:]
        self._given = left
        for changes in done if not self._closed else ():
            self._context.acknowledge(changes)


def _has(changes: Sequence[Change], change: Change) -> bool:
    at = bisect_left(changes, change.sequence, key=_sequence)
    return at < len(changes) and changes[at].sequence == change.sequence
