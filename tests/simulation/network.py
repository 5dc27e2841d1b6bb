"""What lies between a host and its container or feed, and does not always do its duty.

A request is served on the other side, apart from the host: it goes on when the host is
frozen, killed, or has lost its patience, and may take effect long after that.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from changefeed.feeds.errors import FeedUnavailable
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.listing import ListedFleet

_SNAPSHOTS = 8
_WRITES = frozenset(
    {"create", "replace", "acquire", "checkpoint", "write", "delete"}
    | {"put_member", "list_fleet", "remove_member", "patch", "patch_whole"}
)


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad things are, as probabilities for one call. The world changes it.

    ``calls`` are the names of those that it concerns; ``None`` is all of them. A write may be
    sent twice: then the second answer counts, which may well be a conflict with the first.
    With ``give_up`` the client cancels the call by itself, once it was served. ``break_off``
    concerns files: an error in the middle of a transaction.
    """

    slow: float = 0.0
    stall: float = 0.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    throttle: float = 0.0
    stale: float = 0.0
    stale_reads: float = 0.0
    repeat: float = 0.0
    give_up: float = 0.0
    break_off: float = 0.0
    calls: frozenset[str] | None = None

    def clear(self) -> None:
        self.slow = self.stall = self.fail_before = self.fail_after = 0.0
        self.throttle = self.stale = self.stale_reads = self.repeat = self.break_off = 0.0
        self.give_up = 0.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    name: str
    method: "partial[Any]"
    weather: Weather
    answer: "asyncio.Future[Any]"

    def resolve(self, result: object) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def reject(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def give_up(self, _: object) -> None:
        self.answer.cancel()


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
        if asyncio.iscoroutinefunction(method):
            method = partial(self._call, name, method)
            setattr(self, name, method)
        return method

    async def _call(
        self, name: str, method: Callable[..., Any], *args: Any, **more: Any
    ) -> Any:
        self._on_call(name)
        request = _Request(
            name=name,
            method=partial(method, *args, **more),
            weather=self._weather_for(name),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._travel(request.weather, self._arrive, request)
        return await request.answer

    def _arrive(self, request: _Request) -> None:
        chance, weather = self._random.random, request.weather
        if self._down() or chance() < weather.stall:
            return  # no answer, ever
        if chance() < weather.throttle:
            request.reject(self._unavailable("throttled", retry_after=chance() * 3))
        elif chance() < weather.fail_before:
            request.reject(self._unavailable("lost on its way there"))
        elif weather.repeat and request.name in _WRITES and chance() < weather.repeat:
            with suppress(Exception):
                _at_once(request.method())
            self._travel(weather, self._serve, request)
        else:
            self._serve(request)

    def _serve(self, request: _Request) -> None:
        weather = request.weather
        try:
            result = _at_once(request.method())
        except Exception as error:  # noqa: BLE001 - carried to the caller
            self._travel(weather, request.reject, error)
            return
        if request.name in self._listings:
            result = self._perhaps_stale(f"{request.name} {request.method.keywords}", result)
        if isinstance(result, ListedFleet):
            members = self._perhaps_stale(request.name, result.members)
            result = replace(result, members=members)
        result = self._in_session(weather, request.name, request.method.args, result)
        if self._random.random() < weather.fail_after:
            self._travel(weather, request.reject, self._unavailable("lost on its way back"))
        elif weather.give_up and self._random.random() < weather.give_up:
            self._travel(weather, request.give_up, result)
        else:
            self._travel(weather, request.resolve, result)

    def _weather_for(self, name: str) -> Weather:
        calls = self._weather.calls
        return self._weather if calls is None or name in calls else _FINE

    def _travel(self, weather: Weather, then: Callable[..., None], what: Any) -> None:
        """Go on after a while, in nobody's context: it is not frozen with the host."""
        slow = self._random.random() < weather.slow
        delay = self._random.uniform(0.5, 14.0) if slow else 0.002
        asyncio.get_running_loop().call_later(delay, then, what, context=Context())

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


def _at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end what waits for nothing: a store serves a request at one moment."""
    while True:
        try:
            waits_for = call.send(None)
        except StopIteration as end:
            return end.value
        assert waits_for is None, "no store here waits for anything"
