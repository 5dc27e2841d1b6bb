"""What must hold for the whole of a story, in trouble too: limits in time and in number.

A range may be without a reader for as long as its owner takes to expire and another host to
notice; a host that joins meanwhile may be the one to take it, and has seen no owner yet; each
host that is lost meanwhile may have been the next. That counts only while some host could have
read it all the time: it was a member, was connected, and so was the store.

No host asks or writes in a loop: each thing it does has an interval, or a change as its reason.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from changefeed.feeds.feed import RangeId
from changefeed.host.health import Health
from changefeed.leases.lease import Lease

from .checkers import OPERATOR
from .network import Weather
from .progress import Violation
from .sqlite_file import SqliteStores

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_LOOK = 5.0
MAX_UNREAD = 45.0
"""An expiration, and some looks at leases."""
WITH_JOINS = 30.0
"""The expiration of owners, for hosts that join meanwhile."""
EACH_LOSS = 45.0
"""An expiration, and the looks until it is noticed."""

_HANDOFF_POLL = 0.5
_MIN_RETRY = 5.0


class UnreadWatch:
    """Looks at what nobody reads, again and again. Times are in seconds."""

    def __init__(self) -> None:
        self._unread: dict[RangeId, float] = {}
        self._able: dict[str, float] = {}
        self._losses: list[float] = []
        self._joins: list[float] = []

    def lost(self, process_id: str, now: float) -> None:
        """A host was able, and is no longer. One that is known is missed at the next look."""
        if process_id not in self._able:
            self._losses.append(now)

    def look(
        self,
        now: float,
        *,
        unread: Collection[RangeId],
        able: Collection[str],
        others: Collection[str] = (),
    ) -> None:
        """``able`` are our hosts that could read it, ``others`` those of another kind, which
        need not. Raise ``Violation`` for a range that was without a reader for too long.
        """
        now_able = {*able, *others}
        self._losses += [now for x in self._able if x not in now_able]
        self._joins += [now for x in now_able if x not in self._able]
        self._able = {x: self._able.get(x, now) for x in now_able}
        self._unread = {x: self._unread.get(x, now) for x in unread}
        if not able:
            return
        since_when = min(self._able[x] for x in able)
        for range_id, since in self._unread.items():
            begin = max(since, since_when)
            lost = sum(x > begin for x in self._losses)
            joined = any(x > begin for x in self._joins)
            if now - begin > MAX_UNREAD + WITH_JOINS * joined + EACH_LOSS * lost:
                raise Violation(
                    f"nobody has read {range_id} for {now - since:.0f} s, and for "
                    f"{now - begin:.0f} s of them a host could have; {lost} were lost meanwhile"
                )


def too_many_calls(
    calls: Mapping[str, int],
    *,
    seconds: float,
    ranges: int,
    hosts: int,
    observed: int,
    careful: int = 0,
) -> list[str]:
    """Say which calls one process made too often in its life, by their names.

    ``observed`` is how often it called observers; each call may lead to one checkpoint.
    ``careful`` of these were noted in the lease before, and written there afterwards.
    """
    looks = seconds / _HANDOFF_POLL + 20
    each = ranges * (seconds / _MIN_RETRY + 10)
    bounds = {
        # All are listed where some were deleted, and twice at the end of a range.
        ("list", "list_fleet"): 2 * looks + 2 * ranges,
        ("members",): looks,
        ("query",): 2 * looks + 2 * ranges,
        ("changes",): looks + 2 * ranges,
        ("put_member",): looks,
        ("remove_member",): hosts * looks,  # a replica that lags shows the dead again
        ("ranges",): seconds + 10 + 2 * ranges,  # twice at the end of one, for its parts
        ("replace", "patch"): each + looks + 3 * careful,
        ("acquire",): each,
        ("create", "delete"): each + looks,  # with member records
        ("checkpoint", "write", "patch_whole"): observed + 2 * each,
        ("read",): 2 * observed + 10 * each + looks,  # for leases that are not there yet
    }
    made = {names: sum(calls.get(x, 0) for x in names) for names in bounds}
    return [
        f"{'/'.join(names)} {made[names]} times in {seconds:.0f} s, with {ranges} ranges and "
        f"{observed} calls of observers"
        for names, most in bounds.items()
        if made[names] > most
    ]


class Limits:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._watch = UnreadWatch()
        self._lives: dict[str, tuple[float, float]] = {}

    def called(self, process_id: str) -> None:
        now = self._world.loop.time()
        first, _ = self._lives.get(process_id, (now, now))
        self._lives[process_id] = (first, now)

    def lost(self, process: "Process") -> None:
        """A host dies, is frozen or is cut off: between two looks too others count on it."""
        if _takes_leases(process.host.health):
            self._watch.lost(process.id, self._world.loop.time())

    async def watch(self) -> None:
        """Look at the leases now and then, until one is without a reader for too long."""
        while True:
            await asyncio.sleep(_LOOK)
            self._world.check(self._look)

    def _look(self) -> None:
        world = self._world
        able, others = {}, set[str]()
        if world.weather == Weather() and not world.troubles.lagging:
            hosts = [x for x in world.processes.values() if not x.task.done()]
            able = {x.id: x.name for x in hosts if _takes_leases(x.host.health)}
            able = {x: y for x, y in able.items() if self._is_well(x)}
            others = {x for x in world.neighbours.ids if self._is_well(x)}
        readers = {*able.values(), *world.stopping, *(x.split("/")[0] for x in others)}
        readers |= self._cut_off_from_the_feed_alone()
        leases = world.checker.leases.values()
        now = world.loop.time()
        unread = [
            x.range_id
            for x in leases
            if x.owner not in readers
            and not world.checker.owner_was_alive(x.range_id, since=now - _LOOK)
            and _is_open(x, [*leases] if x.range.parents else [])
        ]
        self._watch.look(now, unread=unread, able=able, others=others)

    def _is_well(self, process_id: str) -> bool:
        return not (self._world.loop.is_frozen(process_id) or process_id in self._world.down)

    def _cut_off_from_the_feed_alone(self) -> set[str]:
        """Return hosts that keep their leases by right: a file is reached without a network."""
        world = self._world
        if not isinstance(world.stores, SqliteStores):
            return set()
        down = {x.name: x.id for x in world.processes.values() if x.id in world.down}
        return {x for x, y in down.items() if not world.loop.is_frozen(y)}

    def check_calls(self) -> None:
        """Raise ``Violation`` if some host of ours called something too often."""
        world = self._world
        ranges = world.checker.ranges_seen
        by_process: dict[str, Counter[str]] = {x: Counter() for x in self._lives}
        for (process_id, name), number in world.calls.items():
            by_process[process_id][name] += number
        for process_id, calls in by_process.items():
            if process_id == OPERATOR or process_id in world.checker.neighbours:
                continue
            first, last = self._lives[process_id]
            found = too_many_calls(
                calls,
                seconds=last - first,
                ranges=ranges,
                hosts=len(world.starts),
                observed=world.checker.calls[process_id],
                careful=world.checker.blame.calls[process_id],
            )
            if found:
                raise Violation(f"{process_id} called {'; '.join(found)}")


def _takes_leases(health: Health) -> bool:
    """Whether a host does; one that ends by itself, as its observer has failed, does not."""
    return health.joined and not health.stopping


def _is_open(lease: Lease, leases: Collection[Lease]) -> bool:
    """Whether it is to be read now."""
    if lease.ended or lease.paused is not None:
        return False
    parents = (x for x in leases if x.range_id in lease.range.parents and not x.ended)
    return bool(lease.epoch) or not any(parents)
