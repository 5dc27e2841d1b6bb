"""The leases of a feed: those that are to come are created, those that are over deleted.

What that is, the key map says (``leases.keymap``). What is created or deleted has to be so in
two listings in a row, as one may be torn; and each write is one that any host may make, at any
time, so no host waits for another.

A lease that was deleted by hand is created again by its owner, which alone knows the last
checkpoint (``OwnedLease``); this leaves it to the owner for as long as a dead one would have
kept it. After that, its range begins where its parents have ended, or at ``feed.start``.
"""

import asyncio
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random

from changefeed.feeds.errors import FeedError, FeedUnavailable, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.host.balancing.first_leases import first_leases
from changefeed.host.events import HostEvents
from changefeed.host.settings import FeedSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, LeaseGone
from changefeed.leases.fleet_record import settle_root
from changefeed.leases.keymap import Due, KeyMap
from changefeed.leases.lease import End, Lease
from changefeed.leases.load import coarse, known
from changefeed.leases.timing import Timing
from changefeed.leases.updating import vacate
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.for_each import for_each

_AGAIN_AFTER = 5.0
_BREATH = 0.05
_SOONEST = 1.0  # a listing that flickers must not keep the feed busy
_AT_ONCE = 8
_FIRST_PIECE = 64
_LATER = (StoreUnavailable, FeedUnavailable, RangeRefused, RangeUnknown)

_OVER = "its children go on"
_SUPERSEDED = "its keys have gone to other ranges"


class Discovery:
    """Looks for new ranges now and then; calls ``changed`` when leases came or went.

    It runs beside the rounds of balancing, which a slow feed must not hold up. The owner of a
    lease that was deleted has ``patience`` seconds to create it again.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        settings: FeedSettings,
        *,
        events: HostEvents,
        changed: Callable[[], None],
        timing: Timing,
        random: Random,
        clock: Clock = elapsed_time,
    ) -> None:
        self._feed = feed
        self._container = container
        self._settings = settings
        self._timing = timing
        self._events = events
        self._changed = changed
        self._left = _LeftToOthers(timing.expiration, clock)
        self._random = random
        self._clock = clock
        self._now = asyncio.Event()
        self._asked_at = -inf
        self._root: End | None = None
        self._begun: set[RangeId] = set()  # that were listed so, and not as ended since
        self.ranges: Sequence[FeedRange] = ()
        """Those that the feed had when it was asked last."""

    def look_now(self) -> None:
        """Look without waiting for the interval: ranges have ended, or leases have vanished."""
        self._now.set()

    async def run(self) -> None:
        """Raise what asking again cannot mend."""
        while True:
            wait = self._timing.ranges_interval
            try:
                await self._synchronize()
                wait = min(wait, self._left.due_in)
            except _LATER as error:
                wait = min(wait, _AGAIN_AFTER)
                self._events.retrying("ranges", error, wait)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(_BREATH, wait)):
                    await self._now.wait()
            self._now.clear()

    async def _synchronize(self) -> None:
        """Create and delete leases.

        The ranges are asked for *after* the leases were listed: a range that is gone from
        them is gone for good.
        """
        leases = await self._container.list()
        self._begun -= {x.range_id for x in leases}
        gone = {*self._begun}
        self._begun |= {x.range_id for x in leases if x.epoch and not x.ended}
        if self._clock() >= self._asked_at + _SOONEST:
            self.ranges = await self._feed.ranges()
            self._asked_at = self._clock()
        if self._root is None:
            self._root = await self._settled(leases)
        found = self._plan(leases)
        if not found.is_empty:
            found = found.agreed(self._plan(await self._container.list()))
        due = {x.child.range.id for x in found.due}
        self._left.missing({x.range_id for x in found.gaps} | (due & gone))
        try:
            created = await self._create(found)
        finally:
            deleted = await self._delete(found.over, _OVER)
            deleted |= await self._delete(found.superseded, _SUPERSEDED)
            if deleted:
                self._changed()
        if created:
            self._changed()

    async def _settled(self, leases: Collection[Lease]) -> End | None:
        """Return the root; settle it where there are no leases yet."""
        root = (await self._container.fleet()).root
        if root is None and not leases and not await self._container.list():
            settings = self._settings
            wanted = await first_leases(self._feed, settings.start, settings.parallelism)
            root = await settle_root(self._container, wanted)
        return root

    def _plan(self, leases: Iterable[Lease]) -> "_Plan":
        keymap = KeyMap(leases, root=self._root, ranges=self.ranges)
        # Where positions are handed on, what is missing shows by its keys alone.
        inherits = self._feed.successors_inherit_positions
        listed = () if inherits else {x.id for x in self.ranges}
        return _Plan(
            due=keymap.due(),
            gaps=[x for low, high in keymap.gaps() for x in self._ranges_of(low, high)],
            over=keymap.over(listed),
            superseded=keymap.superseded(),
        )

    def _ranges_of(self, low: str, high: str) -> Iterator[Lease]:
        """Return leases for keys that have none: of the oldest ranges that hold them."""
        holding = [x for x in self.ranges if x.low < high and low < x.high]
        names = {x.id for x in holding}
        for x in holding:
            if names.isdisjoint(x.parents):
                bounds = max(low, x.low), min(high, x.high)
                whole = bounds == (x.low, x.high)
                yield Lease(range=x if whole else self._feed.sub_range(x, *bounds))

    async def _create(self, found: "_Plan") -> bool:
        """Create what is missing; return whether anything was."""
        failed: list[FeedError] = []
        to_create: dict[RangeId, Callable[[], Awaitable[None]]] = {}
        for due in found.due:
            if not self._left.waits_for(due.child.range.id):
                to_create[due.child.range.id] = partial(self._come, due)
        for gap in found.gaps:
            if not self._left.waits_for(gap.range_id):
                to_create[gap.range_id] = partial(self._fill, gap, failed)
        begin = self._random.random()
        await _create_beside_others(to_create, self._container, begin=begin)
        if failed:
            raise failed[0]
        return bool(to_create)

    async def _come(self, due: Due) -> None:
        """Create the lease of a child where its parents have ended."""
        found = due.child.range
        if not found.parents:  # for who draws where ranges come from
            found = replace(found, parents=tuple(x.range_id for x in due.parents))
        child = Lease(range=found, continuation=due.child.start)
        if due.revived is not None:
            with suppress(LeaseConflict, LeaseGone):
                await self._revive(due.revived.revived_as(due.child))
                self._events.created(child)
            return
        await self._create_one(_with_load(child, due.parents))

    async def _revive(self, wanted: Lease) -> None:
        named = wanted.stamped(stamp=time.time())
        stored = await self._container.read(wanted.range_id)
        if stored is not None and stored.continuation is None:
            # The checkpoint of a tombstone, which nobody has read for long, is lost.
            await vacate(self._container, wanted)
        else:
            await self._container.replace(named)

    async def _fill(self, gap: Lease, failed: list[FeedError]) -> None:
        """Create a lease for keys that have none, at the start of the feed."""
        try:
            start = await self._feed.start(gap.range, self._settings.start)
        except (RangeRefused, RangeUnknown) as error:
            failed.append(error)
            return
        await self._create_one(replace(gap, continuation=start))

    async def _create_one(self, wanted: Lease) -> None:
        assert wanted.continuation is not None, f"{wanted.range_id!r} would begin nowhere"
        assert wanted.owner is None, f"{wanted.range_id!r} is not {wanted.owner!r}'s yet"
        if (await self._container.create(wanted)).sign_of_life == wanted.sign_of_life:
            self._events.created(wanted)

    async def _delete(self, leases: Iterable[Lease], reason: str) -> bool:
        deleted = False
        for lease in leases:
            assert lease.ended or not lease.epoch, f"lease {lease.range_id!r} is being read"
            with suppress(LeaseConflict, LeaseGone):  # another host did, or will
                await self._container.delete(lease)
                self._events.deleted(lease, reason)
                deleted = True
        return deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What one listing wants done."""

    due: Sequence[Due]
    gaps: Sequence[Lease]
    over: Sequence[Lease]
    superseded: Sequence[Lease]

    @property
    def is_empty(self) -> bool:
        return not (self.due or self.gaps or self.over or self.superseded)

    def agreed(self, later: "_Plan") -> "_Plan":
        """Return what a later listing wants, too."""
        due = {x.child.range.id for x in self.due}
        gaps, over = _names(self.gaps), _names(self.over)
        superseded = _names(self.superseded)
        return _Plan(
            due=[x for x in later.due if x.child.range.id in due],
            gaps=[x for x in later.gaps if x.range_id in gaps],
            over=[x for x in later.over if x.range_id in over],
            superseded=[x for x in later.superseded if x.range_id in superseded],
        )


class _LeftToOthers:
    """Which leases this host does not create yet: for ``patience`` seconds on ``clock``."""

    def __init__(self, patience: float, clock: Clock) -> None:
        self._patience = patience
        self._clock = clock
        self._since: Mapping[RangeId, float] = {}

    def missing(self, names: Collection[RangeId]) -> None:
        """Note which are missing now."""
        now = self._clock()
        self._since = {x: self._since.get(x, now) for x in names}
        assert all(x <= now for x in self._since.values()), f"it is {now}: {self._since}"

    def waits_for(self, name: RangeId) -> bool:
        since = self._since.get(name)
        return since is not None and self._clock() - since < self._patience

    @property
    def due_in(self) -> float:
        """In how many seconds the first of them is to be created here, if it is not there."""
        return max(0.0, min(self._since.values(), default=inf) + self._patience - self._clock())


async def _create_beside_others(
    to_create: Mapping[RangeId, Callable[[], Awaitable[None]]],
    container: LeaseContainer,
    *,
    begin: float,
) -> None:
    """Create many leases, of which other hosts that start create some.

    Each host begins elsewhere, and looks at what is left after ever larger pieces: else each
    of a hundred hosts would create each of ten thousand leases. ``begin`` is from 0 to 1.
    """
    names = [*to_create]
    first = int(begin * len(names)) if len(names) > _FIRST_PIECE else 0
    left, size = [*names[first:], *names[:first]], _FIRST_PIECE
    while left:
        piece, left = left[:size], left[size:]
        await for_each(piece, lambda x: to_create[x](), at_once=_AT_ONCE)
        if left:
            there = {x.range_id for x in await container.list()}
            left = [x for x in left if x not in there]
        size *= 2


def _with_load(child: Lease, parents: Sequence[Lease]) -> Lease:
    """Give the sub-range of a hot range its part of the load, and no rest before it moves."""
    for parent in parents:
        load = known(parent.load)
        if parent.end is not None and parent.end.by == "split" and load is not None:
            part = coarse(load / len(parent.end.children), None)
            return replace(child, load=part, moved=True)
    return child


def _names(leases: Iterable[Lease]) -> set[RangeId]:
    return {x.range_id for x in leases}
