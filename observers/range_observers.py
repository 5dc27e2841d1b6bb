"""The observers of one range, on hosts and in tasks of Spark, and the calls of them that are
under way.

There is one for each call at once (``observer.concurrency``): what the user wrote sees one call
at a time, and a plain observer has a thread for each. They are handed what the keys of the
range allow (``observers.key_scheduler``).

An observer on which everything fails may be what is broken. So after ``retry.attempts``
failures without a success between they are worn out: they are closed, and others go on with
what is not done. So it is where they fail to open as often.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change, unreadable_text
from changefeed.observers.call import Blame, CalledObserver, ObserverContext, RangeContext
from changefeed.observers.dead_letters.letter import LetterError, failure_of
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.error_text import describe
from changefeed.observers.errors import (
    AttemptFailed,
    ObserverFailed,
    ObserverStuck,
    came_of,
    out_of_memory,
)
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Judge, Successes, Waiting
from changefeed.observers.key_scheduler import Batch, KeyScheduler
from changefeed.observers.observer import CloseReason, ObserverFactory
from changefeed.observers.settings import ObservingSettings
from changefeed.runtime.delays import GrowingDelays
from changefeed.runtime.errors import UserError
from changefeed.runtime.light_event import LightEvent

FIRST_DELAY = 0.5  # seconds
_TRIES_WITHOUT_MEMORY = 3
_CLOSE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class ObserverSetup:
    """What the observers of each range of a host are made of, and who hears how they fare.

    Without ``letters`` no change becomes a dead letter. Give ``successes`` where this does not
    live as long as the process.
    """

    make: ObserverFactory
    settings: ObservingSettings
    events: FailureLog
    random: Random
    letters: LetterWriter | None = field(default=None, kw_only=True)
    successes: Successes = field(default_factory=Successes, kw_only=True)


@dataclass(slots=True, eq=False)
class _Runner:
    """One observer, its view of the range, and the call of it that is under way."""

    observer: CalledObserver
    context: ObserverContext
    call: "asyncio.Task[None] | None" = None
    is_open: bool = False


class RangeObservers:
    """Those of the range of ``context``, which are made when they are ``opened``. No batch has
    more changes than ``largest``.

    Without dead letters, a change that would become one raises ``ObserverFailed``.
    """

    def __init__(self, setup: ObserverSetup, context: RangeContext, largest: int) -> None:
        settings = setup.settings
        self._setup = setup
        self._context = context
        self._range_id = context.range.id
        self._events = setup.events
        self._attempts = settings.retry.attempts
        self._delays = GrowingDelays(FIRST_DELAY, settings.retry.max_delay, setup.random)
        self._manual = settings.checkpoint == "manual"
        patience = None if settings.on_failure == "retry" else self._attempts
        self.keys = KeyScheduler(
            Judge(self._range_id, patience, self._delays, setup.successes),
            random=setup.random,
            observers=settings.concurrency,
            sticky=self._manual and settings.concurrency > 1,
            by_key=settings.ordering == "key",
            largest=largest,
        )
        self.moved = LightEvent()
        """Set when a call has ended; let others set it, too, when there is something to do."""
        self._now = asyncio.get_running_loop().time
        self._looked_at = self._now()
        """When it was last looked whether something is due."""
        self._runners: Sequence[_Runner] = ()
        self._worn_out: ObserverFailed | None = None
        self.stuck = False
        """Whether a call may still run that could not be ended: they are called no more."""

    @asynccontextmanager
    async def opened(self, reason: Callable[[], CloseReason]) -> AsyncIterator[None]:
        """Have observers open in the block. Behind it end their calls, and close them for the
        ``reason`` that there is by then, unless they are stuck.
        """
        async with AsyncExitStack() as life:
            life.push_async_exit(partial(self._leave, reason))
            life.push_async_callback(self.end)
            await self.open()
            yield

    async def _leave(
        self, reason: Callable[[], CloseReason], _: object, error: object, __: object
    ) -> None:
        if isinstance(error, ObserverStuck):
            self.stuck = True
            self._events.observer_stuck(self._range_id, error)
        if not self.stuck:
            await self.close(reason())

    async def open(self) -> None:
        """Open observers, as often as it takes. Raise ``UserError`` for several that keep
        where the range goes on.
        """
        for tries in count(1):
            if not self._runners:
                self._runners = [self._made() for _ in range(self._setup.settings.concurrency)]
            try:
                await self._context.in_call("open", (), self._open_all)
            except AttemptFailed as error:
                await self._rest(tries, error)
            else:
                return

    def _made(self) -> _Runner:
        made, seconds = self._setup.make(), self._setup.settings.timeout
        called = CalledObserver(made, check=self._context.check, seconds=seconds)
        return _Runner(called, ObserverContext(self._context))

    async def _open_all(self, _: object) -> None:
        await _all_of(self._open(x) for x in self._runners if not x.is_open)

    async def _open(self, runner: _Runner) -> None:
        begins = await runner.observer.open(runner.context)
        runner.is_open = True
        if begins is None:
            return
        if len(self._runners) > 1:
            raise UserError(
                f"the observer of range {self._range_id!r} keeps the position itself, "
                f"and each of {len(self._runners)} would keep one: set observer.concurrency=1"
            )
        self._context.begin(begins)

    async def _rest(self, tries: int, error: AttemptFailed) -> None:
        """Wait for the next attempt to open them, or others where these had their last."""
        if tries >= _TRIES_WITHOUT_MEMORY and came_of(error, MemoryError):
            raise out_of_memory(self._range_id, describe(error)) from error
        failed, delay = self._failure(None, tries, error), self._delays.after(tries)
        until = self._now() + delay
        if self._attempts is None or tries % self._attempts:
            self._events.observer_retrying(self._range_id, tries, error, delay)
        else:
            self._events.observer_gave_up(self._range_id, failed, delay)
            await self.close(CloseReason.FAILED)
        while (now := self._now()) < until and not self._context.handing_over:
            self._looked_at = now
            self.moved.clear()
            await self.wait(until)
        if self._context.handing_over:
            raise failed from error

    async def _replace(self, worn_out: ObserverFailed) -> None:
        """Let others go on with what is not done, unless nothing more is delivered here."""
        self._events.observer_gave_up(self._range_id, worn_out, 0.0)
        if self._context.handing_over:
            raise worn_out
        self._worn_out = None
        await self.end()
        await self.close(CloseReason.FAILED)
        self._context.restart()
        await self.open()

    async def close(self, reason: CloseReason) -> None:
        """Close them, and log what that raises: they are not needed any more."""
        runners, self._runners = self._runners, ()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await _all_of(x.observer.close(x.context, reason) for x in runners)
        except Exception as error:  # noqa: BLE001 - the border to the user's code
            self._events.close_failed(self._range_id, error)
        finally:
            for x in runners:
                x.context.close()

    @property
    def are_busy(self) -> bool:
        several = len(self._runners) > 1  # one alone is waited for
        return several and any(x.call is not None for x in self._runners)

    async def give(self) -> bool:
        """Hand over what may be handed over now, and return whether there was anything. One
        observer alone is waited for. What a call has raised comes out.
        """
        for runner in self._runners:
            if runner.call is not None and runner.call.done():
                ended, runner.call = runner.call, None
                ended.result()
        if self._worn_out is not None:
            await self._replace(self._worn_out)
        given, now = False, self._now()
        self._looked_at = now
        for n, runner in enumerate(self._runners):
            batch = self.keys.next(now, n) if runner.call is None else None
            if batch is None:
                continue
            given = True
            if len(self._runners) == 1:
                await self._hand_over(runner, batch)
            else:
                runner.call = asyncio.create_task(self._hand_over(runner, batch))
                runner.call.add_done_callback(self.moved.set)
        return given

    async def wait(self, until: float | None = None) -> None:
        """Wait until something has moved, or what waits is due; no longer than until then."""
        later, times = [], (self.keys.due, until)
        if times != (None, None):
            later = [x for x in times if x is not None and self._looked_at < x < inf]
        if not later:  # the usual case, and a timer costs as much as all else here
            await self.moved.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(later)):
                await self.moved.wait()

    async def end(self) -> None:
        """Cancel the calls that are under way, and wait until each has ended. Raise
        ``ObserverStuck`` for one that is left behind.
        """
        calls = [x.call for x in self._runners if x.call is not None]
        for x in self._runners:
            x.call = None
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        _raise_stuck(calls)

    async def _hand_over(self, runner: _Runner, batch: Batch) -> None:
        changes = batch.changes
        if batch.again or self._manual:  # what was acknowledged late is done
            changes = [x for x in changes if self._context.is_open(x)]
            if not changes:
                self.keys.settled(batch)
                return
        runner.context.give(changes)
        try:
            call = partial(self._process, runner, changes)
            await self._context.in_call("process", changes, call)
        except AttemptFailed as error:
            runner.context.forget()
            try:
                await self._failed(runner, batch, error)
            finally:
                self._tell_what_waits()
            return
        self.keys.done(batch)
        if batch.again:  # else none of its keys has waited
            self._tell_what_waits()

    async def _process(
        self, runner: _Runner, changes: Sequence[Change], blame: Blame | None
    ) -> None:
        given = changes
        aside = changes if blame else [x for x in changes if x.unreadable is not None]
        if aside:
            await self._put_all_aside(runner, changes, aside, blame)
            given = [] if blame else [x for x in changes if x.unreadable is None]
        if given:
            await runner.observer.process(runner.context, given)
        if not self._manual:
            self._context.returned(changes)
            runner.context.forget()

    def _tell_what_waits(self) -> None:
        waiting, outage = self.keys.waiting.values(), self.keys.judge.outage is not None
        self._events.keys_wait(self._range_id, waiting, outage=outage)

    async def _put_all_aside(
        self,
        runner: _Runner,
        changes: Sequence[Change],
        aside: Sequence[Change],
        blame: Blame | None,
    ) -> None:
        """Put aside what of some changes no observer is to be given: what the feed could not
        read, and what has killed its process again and again.

        Without dead letters the range is refused at the first, once those before it are done,
        as no attempt will help.
        """
        for change in aside:
            if self._setup.letters is None:
                raise await self._refusal(runner, changes, change, blame)
            self._context.check()
            failure, attempts = _why_aside(change, blame)
            await self._set_aside(self._setup.letters, runner, change, failure, attempts)

    async def _refusal(
        self, runner: _Runner, changes: Sequence[Change], at: Change, blame: Blame | None
    ) -> RangeRefused:
        before = [x for x in changes if x.sequence < at.sequence]
        if before:
            await runner.observer.process(runner.context, before)
            if not self._manual:
                self._context.returned(before)
        reason = unreadable_text(at) if blame is None else blame.refusal(at)
        return RangeRefused(self._range_id, reason)

    async def _failed(self, runner: _Runner, batch: Batch, error: AttemptFailed) -> None:
        left = [x for x in batch.changes if self._context.is_open(x)]
        why = self.keys.failed(batch, left, self._now(), error)
        if why is None:
            if left and not batch.again:
                self._events.observer_retrying(self._range_id, 1, error, 0.0)
            return
        if why.verdict.puts_aside:
            await self._put_aside(runner, why, error)
            return
        self._report(why, error)
        outage = self.keys.judge.outage
        if outage is not None and outage.out_of_memory >= _TRIES_WITHOUT_MEMORY:
            raise out_of_memory(self._range_id, describe(error)) from error
        in_a_row = self.keys.judge.failures_in_a_row
        if self._attempts is not None and in_a_row >= self._attempts:
            self._worn_out = self._failure(why.change, in_a_row, error)
            self._worn_out.__cause__ = error

    def _report(self, why: Waiting, error: AttemptFailed) -> None:
        until = why.until if self.keys.judge.outage is None else self.keys.judge.outage.until
        delay = max(0.0, until - self._now())
        self._events.observer_retrying(self._range_id, why.tries, error, delay)

    async def _put_aside(self, runner: _Runner, why: Waiting, error: AttemptFailed) -> None:
        """Put a change aside, lastingly, before anything behind it of its key goes on."""
        change = why.change
        if self._setup.letters is None:
            if came_of(error, MemoryError):
                raise out_of_memory(self._range_id, describe(error)) from error
            raise self._failure(change, why.tries, error) from error
        try:
            how = self._setup.letters, runner, change, failure_of(error), why.tries
            await self._context.in_call("put aside", [change], lambda _: self._set_aside(*how))
        except AttemptFailed as failed:
            self.keys.put_back(change)
            self._report(why, failed)
        else:
            self.keys.put_aside(change)

    async def _set_aside(
        self,
        writer: LetterWriter,
        runner: _Runner,
        change: Change,
        failure: LetterError,
        tries: int,
    ) -> None:
        letter = await writer.put(runner.context, change, failure, attempts=tries)
        self._events.dead_letter(letter)
        await runner.observer.put_aside(runner.context, change)
        runner.context.acknowledge(change)

    def _failure(
        self, change: Change | None, tries: int, error: AttemptFailed
    ) -> ObserverFailed:
        sequences = None if change is None else (change.sequence, change.sequence)
        return ObserverFailed(self._range_id, sequences, tries, describe(error))


def _why_aside(change: Change, blame: Blame | None) -> tuple[LetterError, int]:
    """Return why no observer is to be given a change, and how often it was tried."""
    if blame is not None:
        return LetterError(kind="Killed", text=blame.reason, trace=""), blame.times
    assert change.unreadable is not None, "the others are handed on"
    return LetterError(kind="Unreadable", text=change.unreadable, trace=""), 0


async def _all_of(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until all have ended; then raise what the first of them raised.

    Not a ``TaskGroup``, which would cancel the others, and keep a second cancellation, the one
    that gives up a plain call, to itself. Each of them is passed on by ``gather``, and the
    calls are waited for until each has ended or is left behind.
    """
    tasks = [asyncio.create_task(x) for x in calls]
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        _raise_stuck(tasks)
    for x in tasks:
        x.result()


def _raise_stuck(ended: "Iterable[asyncio.Task[None]]") -> None:
    for x in ended:
        error = x.exception() if x.done() and not x.cancelled() else None
        if isinstance(error, ObserverStuck):
            raise error from None
