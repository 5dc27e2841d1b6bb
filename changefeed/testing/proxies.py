"""Puts something between a caller and the async methods of an object: a delay, a fault."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import getattr_static
from random import Random
from typing import Any, TypeVar, cast

from changefeed.stores.kinds import CHECKPOINTS, LEASES
from changefeed.stores.store import CallLimits

T = TypeVar("T")
Around = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Gets the name of the method and the call; returns what the caller is to see."""

_WRITES = {"replace", "acquire", "checkpoint", "write", "patch", "patch_whole"}
"""Those that write leases, of containers, and of items and checkpoints below them."""
_PLAIN = {"position_after", "split", "merge", "sub_range", "keyed", "has_key_of_its_own"}
"""The methods of feeds and items that ask nothing, and so are not async."""


def proxied(inner: T, around: Around) -> T:
    return cast("T", _Proxy(inner, around))


def within(inner: T, bounds: CallLimits) -> T:
    """Ask it within bounds: for what stands between a host and its stores, and stalls."""
    kept = CHECKPOINTS if hasattr(inner, "write") else LEASES

    async def around(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        writes = name in _WRITES
        kind = kept if writes or name == "read" else ""
        return await bounds.ask(name, call(), kind=kind, writes=writes)

    return proxied(inner, around)


def show_methods(proxy: Any, inner: object) -> None:
    """Let ``isinstance`` find in a proxy the methods that its ``__getattr__`` gives it.

    From Python 3.12 on, protocols look past that. A method that the proxy does not give, by
    an ``AttributeError``, or has of its own, is left as it is.
    """
    for name in dir(inner):
        if name.startswith("_") or not callable(getattr_static(inner, name, None)):
            continue
        if not hasattr(type(proxy), name) and hasattr(proxy, name):
            vars(proxy)[name] = getattr(proxy, name)


class _Proxy:
    def __init__(self, inner: object, around: Around) -> None:
        self._inner = inner
        self._around = around
        show_methods(self, inner)

    def bounded(self, bounds: CallLimits) -> Any:
        return within(self, bounds)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method) or name in _PLAIN:
            return method
        return lambda *args, **more: self._around(name, lambda: method(*args, **more))


def delaying(chance: Random) -> Around:
    """Let other tasks run between request and effect, and between effect and answer.

    The delays are turns of the event loop: the same seed gives the same interleaving.
    """

    async def some_turns() -> None:
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)

    async def around(_: str, call: Callable[[], Awaitable[Any]]) -> Any:
        await some_turns()
        try:
            return await call()
        finally:
            await some_turns()

    return around


class FailingCall:
    """Fails one call, by its number from 1, before or after it took effect."""

    def __init__(
        self,
        error: Exception,
        *,
        at: int = 0,
        after: bool = False,
        only: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._error = error
        self._at = at
        self._after = after
        self._only = only
        self.calls = 0

    @property
    def has_cut(self) -> bool:
        return self.calls >= self._at

    async def __call__(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if not self._only(name):
            return await call()
        self.calls += 1
        if self.calls != self._at:
            return await call()
        if self._after:
            await call()
        raise self._error
