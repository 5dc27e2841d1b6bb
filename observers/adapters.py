"""Makes an observer of what users write: a class or a function, async or plain.

Plain methods may block, so they run in a thread, one for each observer; so does the
constructor, of whatever class: it may load a model, and leases must be renewed meanwhile.
What a class without any async method keeps, a SQLite handle say, sees one thread in all its
life. An observer whose methods are all async has no thread once it is made.

A thread cannot be interrupted. A plain call that is cancelled goes on until the user's
function has ended and raises ``CancelledError`` only then, so that no host releases a
lease while the handler still runs. The caller bounds that wait: to cancel a second time
is to give up. The function is then left to itself in its thread, ``close`` waits for it
(until that is cancelled twice as well), and the thread does not hold up the end of the
process.

Limits: ``context.checkpoint`` may be called from any thread, but a plain method cannot
await ``context.flush``. An observer that is never closed keeps its thread.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason, Context, ObserverFactory
from changefeed.observers.one_thread import OneThread
from changefeed.observers.options import check_options
from changefeed.observers.shapes import (
    as_called,
    check_binds,
    takes_context,
)
from changefeed.observers.typed import Decode, decoder_of
from changefeed.runtime.errors import UserError

_METHODS = {
    "open": "(context)",
    "process": "(context, changes)",
    "put_aside": "(context, change)",
    "close": "(context, reason)",
}


def adapt(target: Any, options: Mapping[str, object] | None = None) -> ObserverFactory:
    """Turn a class or a function into a maker of observers, one for each lease.

    A class needs ``process(context, changes)`` or ``process(changes)``; it may have
    ``open(context)``, ``put_aside(context, change)`` and ``close(context, reason)``, and gets
    ``options`` as keyword arguments. After ``open`` raised, the same object may be opened
    again. A function takes ``(context, changes)`` or ``(changes)``, and no options.

    Raise ``UserError`` for anything else, before any of it is called.
    """
    made: Any = target.func if isinstance(target, partial) else target
    if inspect.isclass(made):
        return partial(_Adapted, _class_plan(made, target, dict(options or {})))
    name = getattr(target, "__qualname__", repr(target))
    if hasattr(target, "process"):
        raise UserError(
            f"{name} is one object, and every range needs its own: give its class, "
            f"{type(target).__qualname__}"
        )
    if not callable(target):
        raise UserError(f"{name} is neither a class with a 'process' nor a function")
    if options:
        raise UserError(
            f"{name} is a function and takes no options (given: {', '.join(options)}); "
            f"write a class with a 'process' to have some"
        )
    return partial(_Adapted, _function_plan(target, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How to make the user's object, and how to call it."""

    name: str
    made: Any = None
    """What to call where nothing of the user's has to run first: that of a function."""
    make: Callable[[], Any] = SimpleNamespace
    all_async: bool
    """Whether none of its methods needs a thread."""
    takes_context: bool
    decode: Decode | None
    """What gives the changes the type that the observer wants their values to have."""


def _function_plan(target: Any, name: str) -> _Plan:
    plain = isinstance(target, partial) or inspect.isroutine(target)
    process = target if plain else target.__call__
    return _Plan(
        name=name,
        made=SimpleNamespace(process=process),
        all_async=inspect.iscoroutinefunction(process),
        takes_context=takes_context(process, name),
        decode=decoder_of(process, name),
    )


def _class_plan(cls: type, maker: Callable[..., Any], options: dict[str, Any]) -> _Plan:
    name = cls.__qualname__
    if not hasattr(cls, "process"):
        raise UserError(f"class {name} has no method 'process(self, context, changes)'")
    missing = getattr(cls, "__abstractmethods__", ())
    if missing:
        raise UserError(f"class {name} is abstract; it lacks {', '.join(sorted(missing))}")
    methods = {x: as_called(cls, x) for x in _METHODS if hasattr(cls, x)}
    for method, function in methods.items():
        if method != "process":
            check_binds(function, f"{name}.{method}", _METHODS[method])
    check_options(maker, name, options)
    return _Plan(
        name=name,
        make=partial(maker, **options),
        all_async=all(map(inspect.iscoroutinefunction, methods.values())),
        takes_context=takes_context(methods["process"], f"{name}.process"),
        decode=decoder_of(methods["process"], f"{name}.process"),
    )


class _Adapted:
    """The user's object in the form the host calls it in."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._object: Any = plan.made
        self._thread: OneThread | None = None
        self._name = "observer"

    async def open(self, context: Context) -> str | None:
        self._name = f"observer of {context.range.id}"
        if self._object is None:
            self._object = await self._make()
        if not hasattr(self._object, "open"):
            return None
        begins = await self._call(self._object.open, context)
        if begins is None or isinstance(begins, str):
            return begins
        raise TypeError(
            f"'open' of {self._plan.name} returned {type(begins).__name__}: return nothing, or "
            f"a text of context.checkpoint_with, where the range goes on"
        )

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        decode = self._plan.decode
        given = changes if decode is None else await self._decoded(decode, changes)
        arguments = (context, given) if self._plan.takes_context else (given,)
        await self._call(self._object.process, *arguments)

    async def put_aside(self, context: Context, change: Change) -> None:
        if hasattr(self._object, "put_aside"):
            await self._call(self._object.put_aside, context, change)

    async def _decoded(self, decode: Decode, changes: Sequence[Change]) -> Sequence[Change]:
        """Decode in the thread of a plain observer, so that the event loop goes on."""
        return decode(changes) if self._plan.all_async else await self._run(decode, changes)

    async def close(self, context: Context, reason: CloseReason) -> None:
        try:
            if self._thread is not None:
                await self._thread.run(_nothing)  # after a call that was given up
            if hasattr(self._object, "close"):
                await self._call(self._object.close, context, reason)
        finally:
            self._stop_thread()

    async def _make(self) -> Any:
        try:
            made = await self._run(self._plan.make)
        except RuntimeError as error:
            if "event loop" not in str(error):
                raise
            raise RuntimeError(
                f"the constructor of {self._plan.name} runs in a thread, because it may block: "
                f"make what needs the event loop in 'async def open' ({error})"
            ) from error
        if self._plan.all_async:
            self._stop_thread()
        return made

    def _stop_thread(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        result = await self._run(function, *arguments)
        if inspect.isawaitable(result):  # a lambda, or a decorator, around something async
            return await result
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(f"{function!r} returned a generator, of which nothing has run")
        return result

    async def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        if self._thread is None:
            self._thread = OneThread(self._name)
        return await self._thread.run(function, *arguments)


def _nothing() -> None:
    """Be called, so that the calls before have ended."""
