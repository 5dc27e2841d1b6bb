"""What lies between a host and its container or feed, and does not always do its duty.

A request is served on the other side, apart from the host: it goes on when the host is
frozen, killed, or has lost its patience, and may take effect long after that.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from changefeed.feeds.errors import FeedUnavailable
from changefeed.leases.errors import ContainerUnavailable

_SNAPSHOTS = 8
_WRITES = frozenset(
    {"create", "replace", "acquire", "checkpoint", "write", "delete"}
    | {"put_member", "remove_member", "patch", "patch_whole"}
)


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad things are, as probabilities for one call. The world changes it.

    ``calls`` are the names of those that it concerns; ``None`` is all of them. A write may be
    sent twice: then the second answer counts, which may well be a conflict with the first.
    """

    slow: float = 0.0
    stall: float = 0.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    throttle: float = 0.0
    stale: float = 0.0
    stale_reads: float = 0.0
    repeat: float = 0.0
    calls: frozenset[str] | None = None

    def clear(self) -> None:
        self.slow = self.stall = self.fail_before = self.fail_after = 0.0
        self.throttle = self.stale = self.stale_reads = self.repeat = 0.0
        self.calls = None


_FINE = Weather()


class Replicas:
    """What one store has answered to reads, for replicas that lag behind.

    Answers are numbered, so that a client never reads what is older than its own last write
    or read: a session, as clients of Cosmos DB have it.
    """

    def __init__(self) -> None:
        self._answers: dict[str, deque[tuple[int, Any]]] = defaultdict(
            lambda: deque(maxlen=_SNAPSHOTS)
        )
        self.number = 0

    def remember(self, key: str, answer: Any) -> int:
        self.number += 1
        self._answers[key].append((self.number, answer))
        return self.number

    def since(self, key: str, number: int) -> list[tuple[int, Any]]:
        return [x for x in self._answers[key] if x[0] >= number]


class Server:
    """One store and what it remembers of its past, for listings that lag behind."""

    def __init__(self, store: object, replicas: Replicas | None = None) -> None:
        self.store = store
        self.past: dict[str, deque[Any]] = {}
        self.replicas = replicas or Replicas()

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
        on_call: Callable[[str], None] = lambda _: None,
        listings: tuple[str, ...] = ("list", "members"),
    ) -> None:
        self._server = server
        self._weather = weather
        self._random = random
        self._down = down
        self._on_call = on_call
        self._listings = listings
        self._session: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._server.store, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            self._on_call(name)
            context = Context()  # nobody's: it is not frozen with the host
            loop = asyncio.get_running_loop()
            answer = loop.create_future()
            serving = context.run(
                asyncio.ensure_future, self._serve(name, partial(method, **more), args, answer)
            )
            serving.add_done_callback(_ignore, context=context)
            return await answer

        return call

    async def _serve(
        self,
        name: str,
        method: "partial[Any]",
        args: tuple[Any, ...],
        answer: "asyncio.Future[Any]",
    ) -> None:
        chance = self._random.random
        weather = self._weather_for(name)
        await self._travel(weather)
        if self._down() or chance() < weather.stall:
            return  # no answer, ever
        if chance() < weather.throttle:
            _reject(answer, self._unavailable("throttled", retry_after=chance() * 3))
            return
        if chance() < weather.fail_before:
            _reject(answer, self._unavailable("lost on its way there"))
            return
        try:
            if weather.repeat and name in _WRITES and chance() < weather.repeat:
                with suppress(Exception):
                    await method(*args)
                await self._travel(weather)
            result = await method(*args)
        except Exception as error:  # noqa: BLE001 - carried to the caller
            await self._travel(weather)
            _reject(answer, error)
            return
        if name in self._listings:
            result = self._perhaps_stale(f"{name} {method.keywords}", result)
        result = self._in_session(weather, name, args, result)
        lost = chance() < weather.fail_after
        await self._travel(weather)
        if lost:
            _reject(answer, self._unavailable("lost on its way back"))
        elif not answer.done():
            answer.set_result(result)

    def _weather_for(self, name: str) -> Weather:
        calls = self._weather.calls
        return self._weather if calls is None or name in calls else _FINE

    async def _travel(self, weather: Weather) -> None:
        slow = self._random.random() < weather.slow
        await asyncio.sleep(self._random.uniform(0.5, 14.0) if slow else 0.002)

    def _in_session(
        self, weather: Weather, name: str, args: tuple[Any, ...], result: Any
    ) -> Any:
        """Answer a read from a replica that lags behind, but not behind this client."""
        replicas = self._server.replicas
        if name in _WRITES:
            self._session[_key_of(args)] = replicas.number + 1
        if name != "read" or len(args) != 1:
            return result
        key = _key_of(args)
        replicas.remember(key, result)
        if not weather.stale_reads or self._random.random() >= weather.stale_reads:
            return result
        answers = replicas.since(key, self._session.get(key, 0))
        self._session[key], stale = self._random.choice(answers)
        return stale

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


def _key_of(args: tuple[Any, ...]) -> str:
    record = args[0]
    if isinstance(record, str):
        return record
    return str(record["id"] if isinstance(record, dict) else getattr(record, "range_id", ""))


def _reject(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _ignore(task: "asyncio.Task[Any]") -> None:
    task.exception()
