"""What lies between a host and its container or feed, and does not always do its duty.

A request is served on the other side, apart from the host: it goes on when the host is
frozen, killed, or has lost its patience, and may take effect long after that.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any

from changefeed.feeds.errors import FeedUnavailable
from changefeed.leases.errors import ContainerUnavailable

_SNAPSHOTS = 8


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad things are, as probabilities for one call. The world changes it."""

    slow: float = 0.0
    stall: float = 0.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    throttle: float = 0.0
    stale: float = 0.0

    def clear(self) -> None:
        self.slow = self.stall = self.fail_before = self.fail_after = 0.0
        self.throttle = self.stale = 0.0


class Server:
    """One store and what it remembers of its past, for listings that lag behind."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.past: dict[str, deque[Any]] = {}

    def remember(self, name: str, answer: Any) -> None:
        self.past.setdefault(name, deque(maxlen=_SNAPSHOTS)).append(answer)


class Link:
    """One host's way to one server: every method of the store, with weather in between."""

    def __init__(
        self,
        server: Server,
        weather: Weather,
        random: Random,
        *,
        down: Callable[[], bool],
        listings: tuple[str, ...] = ("list", "members"),
    ) -> None:
        self._server = server
        self._weather = weather
        self._random = random
        self._down = down
        self._listings = listings

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._server.store, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any) -> Any:
            context = Context()  # nobody's: it is not frozen with the host
            loop = asyncio.get_running_loop()
            answer = loop.create_future()
            serving = context.run(
                asyncio.ensure_future, self._serve(name, method, args, answer)
            )
            serving.add_done_callback(_ignore, context=context)
            return await answer

        return call

    async def _serve(
        self,
        name: str,
        method: Callable[..., Any],
        args: tuple[Any, ...],
        answer: "asyncio.Future[Any]",
    ) -> None:
        chance = self._random.random
        weather = self._weather
        await self._travel()
        if self._down() or chance() < weather.stall:
            return  # no answer, ever
        if chance() < weather.throttle:
            _reject(answer, self._unavailable("throttled", retry_after=chance() * 3))
            return
        if chance() < weather.fail_before:
            _reject(answer, self._unavailable("lost on its way there"))
            return
        try:
            result = await method(*args)
        except Exception as error:  # noqa: BLE001 - carried to the caller
            await self._travel()
            _reject(answer, error)
            return
        if name in self._listings:
            result = self._perhaps_stale(name, result)
        lost = chance() < weather.fail_after
        await self._travel()
        if lost:
            _reject(answer, self._unavailable("lost on its way back"))
        elif not answer.done():
            answer.set_result(result)

    async def _travel(self) -> None:
        slow = self._random.random() < self._weather.slow
        await asyncio.sleep(self._random.uniform(0.5, 14.0) if slow else 0.002)

    def _perhaps_stale(self, name: str, result: Any) -> Any:
        """Answer from the past, or torn: some of it from the past, some from now."""
        self._server.remember(name, result)
        if self._random.random() >= self._weather.stale:
            return result
        old = self._random.choice(self._server.past[name])
        if self._random.random() < 0.5:
            return old
        return [
            before if self._random.random() < 0.5 else now
            for before, now in zip(old, result, strict=False)
        ]

    def _unavailable(self, reason: str, retry_after: float | None = None) -> Exception:
        return ContainerUnavailable(reason, retry_after)


class FeedLink(Link):
    def _unavailable(self, reason: str, retry_after: float | None = None) -> Exception:
        return FeedUnavailable(reason, retry_after)


def _reject(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _ignore(task: "asyncio.Task[Any]") -> None:
    task.exception()
