"""Makes an observer of what users write: a class or a function, async or plain.

Plain methods may block, so they run in a thread, one for each observer. A class without
any async method is also made there: what it keeps, a SQLite handle say, sees one thread
in all its life. A class with an async method is made on the event loop.

A thread cannot be interrupted. A plain call that is cancelled goes on until the user's
function has ended and raises ``CancelledError`` only then, so that nobody releases a
lease while the handler still runs. The caller bounds that wait: to cancel a second time
is to give up. The function is then left to itself in its thread, ``close`` waits for it
(until that is cancelled twice as well), and the thread does not hold up the end of the
process.

Limits: ``context.checkpoint`` may be called from any thread, but a plain method cannot
await ``context.flush``. An observer that is never closed keeps its thread.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial, partialmethod
from queue import SimpleQueue
from types import FunctionType, SimpleNamespace
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.observers.errors import ObserverRefused
from changefeed.observers.observer import CloseReason, Context, ObserverFactory
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_METHODS = {"open": "(context)", "process": "(context, changes)", "close": "(context, reason)"}


def adapt(target: Any, options: Mapping[str, object] | None = None) -> ObserverFactory:
    """Turn a class or a function into a maker of observers, one for each lease.

    A class needs ``process(context, changes)`` or ``process(changes)``; it may have
    ``open(context)`` and ``close(context, reason)``, and gets ``options`` as keyword
    arguments. After ``open`` raised, the same object may be opened again. A function
    takes ``(context, changes)`` or ``(changes)``, and no options.

    Raise ``ObserverRefused`` for anything else, before any of it is called.
    """
    made: Any = target.func if isinstance(target, partial) else target
    if inspect.isclass(made):
        return partial(_Adapted, _class_plan(made, target, dict(options or {})))
    name = getattr(target, "__qualname__", repr(target))
    if hasattr(target, "process"):
        raise ObserverRefused(
            f"{name} is one object, and every range needs its own: give its class, "
            f"{type(target).__qualname__}"
        )
    if not callable(target):
        raise ObserverRefused(f"{name} is neither a class with a 'process' nor a function")
    if options:
        raise ObserverRefused(
            f"{name} is a function and takes no options (given: {', '.join(options)}); "
            f"write a class with a 'process' to have some"
        )
    return partial(_Adapted, _function_plan(target, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How to make the user's object, and how to call it."""

    make: Callable[[], Any]
    made_in_thread: bool
    takes_context: bool


def _function_plan(target: Any, name: str) -> _Plan:
    plain = isinstance(target, partial) or inspect.isroutine(target)
    process = target if plain else target.__call__
    return _Plan(
        make=partial(SimpleNamespace, process=process),
        made_in_thread=False,
        takes_context=_takes_context(process, name),
    )


def _class_plan(cls: type, maker: Callable[..., Any], options: dict[str, Any]) -> _Plan:
    name = cls.__qualname__
    if not hasattr(cls, "process"):
        raise ObserverRefused(f"class {name} has no method 'process(self, context, changes)'")
    missing = getattr(cls, "__abstractmethods__", ())
    if missing:
        raise ObserverRefused(
            f"class {name} is abstract; it lacks {', '.join(sorted(missing))}"
        )
    methods = {x: _as_called(cls, x) for x in _METHODS if hasattr(cls, x)}
    for method, function in methods.items():
        if method != "process":
            _check_binds(function, f"{name}.{method}", _METHODS[method])
    _check_constructor(maker, name, options)
    return _Plan(
        make=partial(maker, **options),
        made_in_thread=not any(map(inspect.iscoroutinefunction, methods.values())),
        takes_context=_takes_context(methods["process"], f"{name}.process"),
    )


def _as_called(cls: type, method: str) -> Any:
    """Return the method as an object of ``cls`` would show it, without making an object."""
    raw = inspect.getattr_static(cls, method)
    if isinstance(raw, FunctionType | staticmethod | classmethod | partialmethod):
        return raw.__get__(object(), cls)
    return raw


def _signature(function: Any, name: str) -> inspect.Signature:
    if not callable(function):
        raise ObserverRefused(f"{name} is not a method, but {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ObserverRefused(
            f"{name} is a generator: calling it runs nothing. Handle the changes and return, "
            f"without 'yield'"
        )
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise ObserverRefused(
            f"{name} does not tell its parameters; wrap it in a 'def'"
        ) from error


def _takes_context(function: Any, name: str) -> bool:
    """Whether it is ``(context, changes)`` rather than ``(changes)``; refuse all else."""
    parameters = _signature(function, name).parameters.values()
    needed = [x for x in parameters if x.default is x.empty]
    by_place = [x for x in needed if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    by_name = [x for x in needed if x.kind is x.KEYWORD_ONLY]
    any_number = any(x.kind is x.VAR_POSITIONAL for x in parameters)
    if by_name or len(by_place) > 2 or not (by_place or any_number):  # noqa: PLR2004 - as it says
        raise ObserverRefused(
            f"{name} must take (context, changes) or (changes); "
            f"it takes {_signature(function, name)}"
        )
    return len(by_place) != 1


def _check_binds(function: Any, name: str, wanted: str) -> None:
    signature = _signature(function, name)
    try:
        signature.bind(*wanted.split(","))
    except TypeError as error:
        raise ObserverRefused(f"{name} must take {wanted}; it takes {signature}") from error


def _check_constructor(maker: Callable[..., Any], name: str, options: dict[str, Any]) -> None:
    try:
        inspect.signature(maker).bind(**options)
    except TypeError as error:
        given = ", ".join(options) or "none"
        raise ObserverRefused(
            f"{name} cannot be made of these options: {error} (given: {given})"
        ) from error


class _Adapted:
    """The user's object in the form the host calls it in."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._object: Any = None
        self._thread: _Thread | None = None
        self._name = "observer"

    async def open(self, context: Context) -> None:
        self._name = f"observer of {context.range.id}"
        if self._object is None:
            make = self._plan.make
            self._object = await self._run(make) if self._plan.made_in_thread else make()
        if hasattr(self._object, "open"):
            await self._call(self._object.open, context)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        arguments = (context, changes) if self._plan.takes_context else (changes,)
        await self._call(self._object.process, *arguments)

    async def close(self, context: Context, reason: CloseReason) -> None:
        try:
            if self._thread is not None:
                await self._thread.run(_nothing)  # after a call that was given up
            if hasattr(self._object, "close"):
                await self._call(self._object.close, context, reason)
        finally:
            if self._thread is not None:
                self._thread.stop()

    async def _call(self, function: Callable[..., Any], *arguments: object) -> None:
        if inspect.iscoroutinefunction(function):
            await function(*arguments)
            return
        result = await self._run(function, *arguments)
        if inspect.isawaitable(result):  # a lambda, or a decorator, around something async
            await result
        elif inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(f"{function!r} returned a generator, of which nothing has run")

    async def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        if self._thread is None:
            self._thread = _Thread(self._name)
        return await self._thread.run(function, *arguments)


def _nothing() -> None:
    """Be called, so that the calls before have ended."""


class _Thread:
    """One thread that makes one call after the other.

    Not a ``ThreadPoolExecutor``: Python joins those at exit, and one handler that hangs
    would keep the process alive for ever.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in the thread; see the module on what cancellation does."""
        call = _Call(partial(copy_context().run, function, *arguments))
        self._calls.put(call)
        ended = asyncio.wrap_future(call.ended)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            await _outlast(ended, call)
            raise
        return ended.result()

    def stop(self) -> None:
        """Let the thread end once its calls have."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # an idle thread holds no changes


async def _outlast(ended: asyncio.Future[Any], call: "_Call") -> None:
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        call.ended.cancel()  # given up: what has not begun will not begin
        ended.cancel()  # what has begun may end when this loop is closed
        call.ended.add_done_callback(_log_what_nobody_awaits)
        raise
    ended.exception()  # else asyncio logs it as well
    _log_what_nobody_awaits(call.ended)


def _log_what_nobody_awaits(ended: concurrent.futures.Future[Any]) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        _log.warning("observer failed after it was cancelled", exc_info=error)


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self.ended: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._function = function

    def make(self) -> None:
        if not self.ended.set_running_or_notify_cancel():
            return
        try:
            self.ended.set_result(self._function())
        except (
            StopIteration,  # no future can carry it: its awaiter would wait for ever
            asyncio.CancelledError,  # nobody cancelled us: only the user's own futures
            concurrent.futures.CancelledError,
        ) as error:
            failure = RuntimeError(f"the observer raised {error!r}")
            failure.__cause__ = error
            self.ended.set_exception(failure)
        except BaseException as error:  # noqa: BLE001 - the border of the thread
            self.ended.set_exception(error)
