"""An object store that is slow, full, fails, loses answers, acts late, and lists late.

A byte of an object may be damaged for a while. What it never does is what object stores never
do: forget an object, show half of one, or let two callers create the same.
"""

import asyncio
import contextvars
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from changefeed.log.catalog.names import CATALOG, COLLECTIONS
from changefeed.log.stores.store import MISSING, Listed, Versioned, version_of
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from tests.simulation.probes import BrokerProbe as Probe
from tests.simulation.probes import Probes
from tests.support.looking import now

T = TypeVar("T")

LATEST = 20.0
"""What the store may do later than it was asked for, in seconds: past every expiration."""


@dataclass(slots=True)
class Weather:
    """How likely it is, for each call, that something goes wrong; times in seconds."""

    fail_before: float = 0.0
    fail_after: float = 0.0
    late: float = 0.0  # it fails, and is done later
    slow: float = 0.0
    list_late: float = 0.0  # how old what a listing shows may be
    full: bool = False  # nothing can be written

    def clear(self) -> None:
        self.fail_before = self.fail_after = self.late = self.slow = self.list_late = 0.0


class Watching(Protocol):
    """Looks at what happens in a store."""

    def replaced(self, key: str, now: float) -> None:
        """Note that the catalog was changed."""
        ...

    def was_replaced(self) -> None:
        """Note that the catalog was to be changed, and somebody was quicker."""
        ...

    def exists(self, key: str, data: bytes) -> None:
        """Note that an object was to be created, and that there is one."""
        ...

    def deleting(self, key: str) -> None: ...


class Objects:
    """What is stored, since when, and when that was asked for first.

    ``damaged`` are whole objects that show a flipped byte instead, ``deleted`` those that
    are gone. Those that a disk has back, as it lost power, are not.
    """

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.since: dict[str, float] = {}
        self.written: dict[str, float] = {}
        self.asked: dict[str, float] = {}
        self.keys: list[str] = []
        self.damaged: dict[str, bytes] = {}
        self.deleted: dict[str, bytes] = {}
        self.watching: Watching | None = None

    def create(self, key: str, data: bytes, now: float) -> bool:
        if key in self.data:
            if self.watching is not None:
                self.watching.exists(key, data)
            return False
        self.put(key, data, now)
        if self.watching is not None and key.startswith(COLLECTIONS):
            self.watching.replaced(key, now)
        return True

    def replace(self, key: str, data: bytes, version: str, now: float) -> str | None:
        if self.version(key) != version:
            if self.watching is not None and key == CATALOG:
                self.watching.was_replaced()
            return None
        self.put(key, data, now)
        if self.watching is not None and (key == CATALOG or key.startswith(COLLECTIONS)):
            self.watching.replaced(key, now)
        return version_of(data)

    def version(self, key: str) -> str:
        return version_of(self.data[key]) if key in self.data else MISSING

    def put(self, key: str, data: bytes, now: float) -> None:
        if key not in self.data:
            insort(self.keys, key)
            self.since[key] = now
        self.data[key] = data
        self.written[key] = now

    def delete(self, key: str) -> None:
        if key not in self.data:
            return
        if self.watching is not None:
            self.watching.deleting(key)
        self.deleted.setdefault(key, self.whole(key))
        self.damaged.pop(key, None)
        del self.data[key], self.since[key], self.written[key]
        self.keys.remove(key)

    def come_back(self, key: str, now: float) -> None:
        """Undo that an object was deleted, unless there is another of its name."""
        if key not in self.data:
            self.put(key, self.deleted.pop(key), now)

    def whole(self, key: str) -> bytes:
        """Return an object as it was written."""
        return self.damaged.get(key) or self.data[key]

    def ever(self, key: str) -> bytes | None:
        """Return an object as it was written first, also one that was deleted.

        A store that acts late may create another in its place.
        """
        return self.deleted.get(key) or (self.whole(key) if key in self.data else None)

    def flip(self, key: str, place: int) -> None:
        """Damage one byte of an object, until it is restored."""
        whole = self.damaged[key] = self.whole(key)
        shown = bytearray(whole)
        shown[place] ^= 0x10
        self.data[key] = bytes(shown)

    def restore(self, key: str) -> None:
        whole = self.damaged.pop(key, None)
        if whole is not None:
            self.data[key] = whole

    def listed(self, prefix: str, after: str, until: float) -> list[Listed]:
        found = []
        for key in self.keys[bisect_right(self.keys, max(prefix, after)) :]:
            if not key.startswith(prefix):
                break
            if self.since[key] <= until:
                found.append(Listed(key, len(self.data[key])))
        return found


class Link:
    """The store as one process reaches it. ``is_cut`` says whether it does now."""

    def __init__(
        self,
        objects: Objects,
        weather: Weather,
        random: Random,
        is_cut: Callable[[], bool] = lambda: False,
        probes: Probes | None = None,
    ) -> None:
        self._objects = objects
        self._weather = weather
        self._random = random
        self._is_cut = is_cut
        self._probes = Probes() if probes is None else probes

    async def create(self, key: str, data: bytes) -> bool:
        self._objects.asked.setdefault(key, now())
        return await self._call(
            lambda: self._objects.create(key, data, now()), "create " + key, writes=True
        )

    async def put(self, key: str, data: bytes) -> None:
        self._probes.hit(Probe.SIGNED, where=key.startswith("brokers/"))
        await self._call(lambda: self._objects.put(key, data, now()), "put " + key, writes=True)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        return await self._call(
            lambda: self._objects.replace(key, data, version, now()),
            "replace " + key,
            writes=True,
        )

    async def newer(self, key: str, version: str) -> Versioned | None:
        def act() -> Versioned | None:
            now = self._objects.version(key)
            data = self._objects.data.get(key, b"")
            return None if now == version else Versioned(data, now)

        return await self._call(act, "get " + key)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        data = await self._call(lambda: self._objects.data.get(key), "get " + key)
        return None if data is None else data[start:end]

    async def written_at(self, key: str) -> float | None:
        return await self._call(lambda: self._objects.written.get(key), "head " + key)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        lag = self._random.uniform(0, self._weather.list_late)

        def act() -> Sequence[Listed]:
            shown = self._objects.listed(prefix, after, now() - lag)
            there = len(self._objects.listed(prefix, after, now())) if lag else len(shown)
            self._probes.hit(Probe.LISTED_LATE, where=len(shown) < there)
            return shown

        return await self._call(act, "list " + prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        def act() -> None:
            for key in keys:
                self._objects.delete(key)

        await self._call(act, "delete")

    async def _call(self, act: Callable[[], T], what: str, *, writes: bool = False) -> T:
        """Do something in the store: apart from the process, which may be frozen or gone."""
        weather, chance = self._weather, self._random.random()
        if self._is_cut():
            self._probes.hit(Probe.CUT_OFF)
            await asyncio.sleep(1)
            raise StoreUnavailable(f"{what}: cut off")
        delay = self._random.uniform(0.001, 0.02)
        if self._random.random() < weather.slow:
            delay += self._random.choice([0.3, 2.0, 8.0])
        if chance < weather.fail_before or (writes and weather.full):
            self._probes.hit(Probe.NO_ROOM, where=writes and weather.full)
            await asyncio.sleep(delay)
            says = self._random.choice([StoreUnavailable, StoreUnavailable, StoreRefused])
            raise says(f"{what}: not done")
        chance -= weather.fail_before
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if chance < weather.late:
            later = partial(self._late, act, what)
            self._later(self._random.choice([0.5, 3.0, 15.0, LATEST]), later, done)
            await asyncio.sleep(delay)
            raise StoreUnavailable(f"{what}: it may come later")
        self._later(delay, act, done)
        result = await done
        if chance - weather.late < weather.fail_after or self._is_cut():
            raise StoreUnavailable(f"{what}: the answer was lost")
        return result

    def _late(self, act: Callable[[], T], what: str) -> T:
        result, creates = act(), what.startswith(("create ", "replace "))
        self._probes.hit(Probe.WRITE_CAME_LATE, where=creates and bool(result))
        self._probes.hit(Probe.LATE_AND_FENCED, where=creates and not result)
        return result

    def _later(self, delay: float, act: Callable[[], T], done: "asyncio.Future[T]") -> None:
        def run() -> None:
            result = act()
            if not done.done():
                done.set_result(result)

        asyncio.get_running_loop().call_later(delay, run, context=contextvars.Context())
