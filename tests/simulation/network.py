"""What lies between a host and its container or feed, and does not always do its duty.

A request is served on the other side, apart from the host: it goes on when the host is
frozen, killed, or has lost its patience, and may take effect long after that.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.leases.container import ListedFleet
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered
from changefeed.stores.store import WHOLE, CallLimits
from changefeed.testing.proxies import show_methods, within

from .scout import Fate

_SNAPSHOTS = 8
_OF_ONE_RECORD = frozenset(
    {"create", "replace", "acquire", "checkpoint", "write", "delete", "patch", "patch_whole"}
)
_WRITES = _OF_ONE_RECORD | {"put_member", "list_fleet", "remove_member"}
LATENCY = 0.002
_MAX_LAG = 5.0
"""Seconds. What waits for a replica that may lag waits for twice as long."""


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


@dataclass(slots=True, kw_only=True)
class _State:
    """What one record was, from the write of that number to ``until``."""

    number: int
    record: Any
    until: float = inf


class Replicas:
    """What the records of one store were lately, for replicas that lag behind.

    Each write of a record makes a state of it, with a number. A client is shown none that is
    older than its own last write of the record that was answered, or than what it was shown of
    it last: a session, as clients of Cosmos DB have it, where each record lies in a partition
    of its own. What others have written since it may be shown or not. Nothing is remembered
    until replicas lag for the first time.
    """

    def __init__(self) -> None:
        self._states: dict[str, deque[_State]] = {}
        self._number = 0

    def remembers(self, key: str) -> bool:
        return key in self._states

    def newest(self, key: str) -> int:
        """Return the number of the state that a record is in, as far as it is known."""
        states = self._states.get(key)
        return states[-1].number if states else 0

    def written(self, key: str, before: Any, after: Any, now: float) -> None:
        """Take in a write of a record, which may have changed nothing."""
        if before == after:
            return
        states = self._states.setdefault(key, deque(maxlen=_SNAPSHOTS))
        if not states or states[-1].record != before:  # written while nothing lagged
            states.clear()
            states.append(_State(number=self._next(), record=before))
        states[-1].until = now
        states.append(_State(number=self._next(), record=after))

    def shown(self, key: str, session: int, now: float) -> list[tuple[int, Any]]:
        """Return what a client may be shown of a record, with numbers, the newest last."""
        return [
            (x.number, x.record)
            for x in self._states.get(key, ())
            if x.number >= session and x.until > now - _MAX_LAG
        ]

    def _next(self) -> int:
        self._number += 1
        return self._number


class Server:
    """One store and what it remembers of its past, for listings that lag behind."""

    def __init__(self, store: Any, replicas: Replicas | None = None) -> None:
        self.store = store
        self.past: dict[str, deque[Any]] = {}
        self.replicas = replicas or Replicas()
        self.held: Any = None
        """The members that a replica shows which stands still."""

    def remember(self, name: str, answer: Any) -> None:
        self.past.setdefault(name, deque(maxlen=_SNAPSHOTS)).append(answer)


@dataclass(slots=True, kw_only=True)
class _Request:
    """``on_answer`` is called when an answer of the store has reached the client."""

    name: str
    method: "partial[Any]"
    weather: Weather
    answer: "asyncio.Future[Any]"
    on_answer: Callable[[], None] = lambda: None
    was_sent_before: bool = False

    @property
    def key(self) -> str | None:
        """The one record that it reads or writes; ``None`` for what is about several."""
        args = self.method.args
        one = self.name in _OF_ONE_RECORD or (self.name == "read" and len(args) == 1)
        return _key_of(args) if one else None

    def refused_by(self, result: object) -> bool:
        """Whether this is a write, and the answer says that another had come before."""
        says_nothing = self.name in ("delete", "remove_member")
        return result is False or (result is None and self.name in _WRITES and not says_nothing)

    def resolve(self, result: object) -> None:
        if not self.answer.done():
            self.on_answer()
            self.answer.set_result(result)

    def refuse(self, error: Exception) -> None:
        """Raise what the store has answered."""
        if not self.answer.done():
            self.on_answer()
            self.answer.set_exception(error)

    def reject(self, error: Exception) -> None:
        """Raise that no answer came."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def give_up(self, _: object) -> None:
        self.answer.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What the way of one process to a server is like, whatever the weather.

    ``latency`` is how long a message takes, in seconds. ``stale_reads`` is the least that the
    weather has of it. With ``lags`` its listings of members come from a replica that stands
    still. ``comes_late`` says how much later a request arrives that got stuck; ``None`` for
    never. ``on_stale`` is called for each read that was answered from the past. ``refuses``
    says whether the server takes the secret of a request for wrong. ``on_fate`` is called with
    what else became of a request, what it was about, and what the store refused it with.
    """

    down: Callable[[], bool]
    on_call: Callable[[str], None] = lambda _: None
    latency: float = LATENCY
    stale_reads: Callable[[], float] = lambda: 0.0
    lags: Callable[[], bool] = lambda: False
    comes_late: Callable[[str], float | None] = lambda _: None
    on_stale: Callable[[], None] = lambda: None
    refuses: Callable[[], bool] = lambda: False
    on_fate: Callable[[Fate, str, Any, Exception | None], None] = lambda *_: None


class Link:
    """One host's way to one server: every method of the store, with weather in between.

    ``listings`` are the calls that list what there is, and ``members`` is the ``listing`` of
    them that lists members.
    """

    def __init__(
        self,
        server: Server,
        weather: Weather,
        random: Random,
        way: Way,
        *,
        listings: tuple[str, ...] = ("list", "members"),
        members: str = "members",
    ) -> None:
        self._server = server
        self._weather = weather
        self._random = random
        self._way = way
        self._listings = listings
        self._members = members
        self._session: dict[str, int] = {}
        show_methods(self, server.store)

    def bounded(self, bounds: CallLimits) -> Any:
        return within(self, bounds)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._server.store, name)
        if inspect.iscoroutinefunction(method):
            method = partial(self._call, name, method)
            setattr(self, name, method)
        return method

    async def _call(
        self, name: str, method: Callable[..., Any], *args: Any, **more: Any
    ) -> Any:
        self._way.on_call(name)
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
        if self._way.down():
            return  # no answer, ever
        if self._way.refuses():
            request.reject(answered(self._refused("the secret is wrong")))
        elif chance() < weather.stall:
            self._stuck(request)
        elif chance() < weather.throttle:
            request.reject(self._unavailable("throttled", retry_after=chance() * 3))
        elif chance() < weather.fail_before:
            request.reject(self._unavailable("lost on its way there"))
        elif weather.repeat and request.name in _WRITES and chance() < weather.repeat:
            with suppress(Exception):
                request.was_sent_before = not request.refused_by(self._perform(request))
            self._travel(weather, self._serve, request)
        else:
            self._serve(request)

    def _stuck(self, request: _Request) -> None:
        """Give no answer; but what was asked may be done long after it was given up."""
        seconds = self._way.comes_late(request.name)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._serve_late, request, context=Context())

    def _serve_late(self, request: _Request) -> None:
        self._met(Fate.LATE, request)
        self._serve(request)

    def _met(self, fate: Fate, request: _Request, error: Exception | None = None) -> None:
        args = request.method.args
        self._way.on_fate(fate, request.name, args[0] if args else None, error)

    def _met_refusal(self, request: _Request, error: Exception | None) -> None:
        fate = Fate.MET_ITSELF if request.was_sent_before else Fate.REFUSED
        self._met(fate, request, error)

    def _serve(self, request: _Request) -> None:
        weather = request.weather
        try:
            result = self._perform(request)
        except Exception as error:  # noqa: BLE001 - carried to the caller
            self._met_refusal(request, error)
            self._in_session(request, None)
            self._travel(weather, request.refuse, error)
            return
        if request.refused_by(result):
            self._met_refusal(request, None)
        if request.name in self._listings:
            name = listing(request.name, **request.method.keywords)
            result = self._perhaps_stale(request, name, result)
            if name == self._members:
                result = self._perhaps_held(request, result)
        if isinstance(result, ListedFleet) and result.token == WHOLE:
            # What shows all each time may show it as it was; an answer about what was written
            # since comes with the token that belongs to it.
            leases = self._perhaps_stale(request, "list", result.leases)
            members = self._perhaps_stale(request, "members", result.members)
            members = self._perhaps_held(request, members)
            result = replace(result, leases=leases, members=members)
        result = self._in_session(request, result)
        if self._random.random() < weather.fail_after:
            self._met(Fate.UNANSWERED, request)
            self._travel(weather, request.reject, self._unavailable("lost on its way back"))
        elif weather.give_up and self._random.random() < weather.give_up:
            self._met(Fate.GIVEN_UP, request)
            self._travel(weather, request.give_up, result)
        else:
            self._travel(weather, request.resolve, result)

    def _weather_for(self, name: str) -> Weather:
        calls = self._weather.calls
        return self._weather if calls is None or name in calls else _FINE

    def _travel(self, weather: Weather, then: Callable[..., None], what: Any) -> None:
        """Go on after a while, in nobody's context: it is not frozen with the host."""
        slow = self._random.random() < weather.slow
        delay = self._random.uniform(0.5, 14.0) if slow else self._way.latency
        asyncio.get_running_loop().call_later(delay, then, what, context=Context())

    def _perform(self, request: _Request) -> Any:
        """Do what is asked; while replicas lag, remember what it has made of the record."""
        server, key = self._server, request.key
        if key is None or request.name == "read" or not self._stale_reads(self._weather):
            return _at_once(request.method())
        before = _at_once(server.store.read(key))
        try:
            return _at_once(request.method())
        finally:
            now = asyncio.get_running_loop().time()
            server.replicas.written(key, before, _at_once(server.store.read(key)), now)

    def _in_session(self, request: _Request, result: Any) -> Any:
        """Answer a read from a replica that lags behind, but not behind this client."""
        key, replicas = request.key, self._server.replicas
        stale_reads = self._stale_reads(request.weather)
        if key is None or not (stale_reads or replicas.remembers(key)):
            return result
        number = replicas.newest(key)
        if request.name == "read" and stale_reads and self._random.random() < stale_reads:
            now = asyncio.get_running_loop().time()
            shown = replicas.shown(key, self._session.get(key, 0), now)
            if len(shown) > 1:
                number, result = self._random.choice(shown)
                if number != replicas.newest(key):
                    self._way.on_stale()
        request.on_answer = partial(self._saw, key, number)
        return result

    def _stale_reads(self, weather: Weather) -> float:
        return max(weather.stale_reads, self._way.stale_reads())

    def _saw(self, key: str, number: int) -> None:
        self._session[key] = max(number, self._session.get(key, 0))

    def _perhaps_stale(self, request: _Request, name: str, result: Any) -> Any:
        """Answer from the past, or torn: some of it from the past, some from now."""
        self._server.remember(name, result)
        fate, shown = Fate.LISTED, result
        if self._random.random() < self._weather.stale:
            old = self._random.choice(self._server.past[name])
            if self._random.random() < 0.5:
                fate, shown = Fate.STALE, old
            else:
                fate, shown = Fate.TORN, self._torn(old, result)
        self._met(fate if shown != result else Fate.LISTED, request)
        return shown

    def _torn(self, old: Any, result: Any) -> Any:
        return [
            before if self._random.random() < 0.5 else now
            for before, now in zip(old, result, strict=False)
        ]

    def _perhaps_held(self, request: _Request, members: Any) -> Any:
        """Show members as they were when the replica that is asked stood still."""
        server = self._server
        if not self._way.lags():
            server.held = None
        elif server.held is None:
            server.held = members
        if server.held not in (None, members):
            self._met(Fate.HELD, request)
        return members if server.held is None else server.held

    def _unavailable(self, reason: str, retry_after: float | None = None) -> Exception:
        return StoreUnavailable(reason, retry_after)

    def _refused(self, reason: str) -> Exception:
        return StoreRefused(reason)


class FeedLink(Link):
    def _unavailable(self, reason: str, retry_after: float | None = None) -> Exception:
        return FeedUnavailable(reason, retry_after)

    def _refused(self, reason: str) -> Exception:
        return FeedRefused(reason)


def listing(call: str, **arguments: object) -> str:
    """Return the name of what a call lists with these arguments."""
    return f"{call} {arguments}" if arguments else call


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
