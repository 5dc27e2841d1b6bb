"""What people do to a fleet from outside: with our commands, or with their own hands."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from changefeed.feeds.errors import FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import BoundedFeed, Feed, FeedRange, RangeId
from changefeed.fleet.claims import pause, release, resume
from changefeed.fleet.reset import carry_out, planned
from changefeed.fleet.reshape import merge, split
from changefeed.fleet.stopping import LeasedFeed
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.runtime.calls import Patience
from changefeed.runtime.errors import StoreUnavailable, UserError
from changefeed.stores.store import CallLimits
from tests.support import make

from .checkers import OPERATOR
from .probes import Probe

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
_TIMEOUT = 10.0
_PATIENCE = 60.0
_FAILURES = (
    StoreUnavailable,
    FeedUnavailable,
    LeaseConflict,
    RangeUnknown,
)


class Operators:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random

    def container(self) -> LeaseContainer:
        limits = CallLimits(timeout=_TIMEOUT, patience=Patience(_PATIENCE))
        return self._world.connect(OPERATOR).bounded(limits)

    def feed(self) -> Feed:
        feed = self._world.feed_of(OPERATOR)
        return BoundedFeed(feed, timeout=_TIMEOUT, patience=Patience(_PATIENCE))

    async def pause(self) -> None:
        """Pause one range, or the whole fleet, and resume it later."""
        world, container = self._world, self.container()
        await asyncio.sleep(0)
        open_ranges = [x.id for x in world.source.open_ranges()]
        chosen = None if self._random.random() < 0.5 else [self._random.choice(open_ranges)]
        world.tell(f"pause {chosen or 'everything'}")
        with suppress(StoreUnavailable, LeaseConflict):
            await pause(container, chosen, "an operator says so")
        await asyncio.sleep(self._random.uniform(1, 60))
        await self.resume(chosen)

    async def pause_for_a_while(self, range_id: RangeId) -> None:
        """Pause a range, and resume it soon."""
        self._world.tell(f"pause {range_id}")
        with suppress(StoreUnavailable, LeaseConflict):
            await pause(self.container(), [range_id], "an operator says so")
        await asyncio.sleep(10)
        await self.resume([range_id])

    async def resume(self, chosen: Collection[RangeId] | None) -> None:
        """Resume some ranges, or all, and again until that worked."""
        container = self.container()
        while True:
            self._world.tell(f"resume {chosen or 'everything'}")
            try:
                await resume(container, chosen)
            except (StoreUnavailable, LeaseConflict):
                await asyncio.sleep(1)
            else:
                return

    async def resume_all(self) -> None:
        """Resume what observers have stopped, until that worked."""
        container = self.container()
        with suppress(*_FAILURES):
            for range_id in await resume(container, None):
                self._world.tell(f"resume {range_id}, which had stopped")

    async def release(self) -> None:
        """Take some lease from its owner."""
        await self._about_some_lease("release", self._release)

    async def _release(self, container: LeaseContainer, lease: Lease) -> None:
        await release(container, lease.range_id)

    async def reset(self) -> None:
        """Read a range again from its beginning: it is paused meanwhile."""
        await self._about_some_lease("reset", self._reset)

    async def _reset(self, container: LeaseContainer, lease: Lease) -> None:
        await pause(container, [lease.range_id], "to be reset")
        await asyncio.sleep(self._random.uniform(0, 20))
        move = await planned(self.feed(), container, lease.range_id, "beginning")
        with suppress(UserError):
            await carry_out(container, move)
        await resume(container, [lease.range_id])

    async def delete(self) -> None:
        """Delete some lease by hand: its range is read again, from where settings say."""
        await self._about_some_lease("delete the lease of", self._delete)

    async def _delete(self, container: LeaseContainer, lease: Lease) -> None:
        await container.delete(lease)

    async def split(self) -> None:
        """Split some range that the feed has not, and again until it is done or refused; then
        merge the parts and split it again, so that they come back under their names.
        """
        await self._about_some_lease("split by hand", self._split)

    async def _split(self, container: LeaseContainer, lease: Lease) -> None:
        leased, into = self._leased(container), self._random.choice([2, 2, 3, 4])
        parts = await self._insist(lambda: split(leased, lease.range_id, into))
        if parts is None:
            return
        await asyncio.sleep(self._random.uniform(10, 30))
        names = [x.id for x in parts]
        joined = await self._insist(lambda: merge(leased, names, patience=30))
        if joined is not None:
            await asyncio.sleep(self._random.uniform(10, 30))
            await self._insist(lambda: split(leased, joined.id, into))

    async def merge(self) -> None:
        """Merge some ranges that touch, and that the feed has as one, likewise."""
        container = self.container()
        with suppress(*_FAILURES):
            leases = [x.range for x in await container.list() if x.epoch and not x.ended]
            beside = [
                [y for y in sorted(leases, key=lambda y: y.low) if x.covers(y)]
                for x in self._world.source.open_ranges()
            ]
            runs = [x for x in beside if len(x) > 1]
            if runs:
                await self._merge(container, self._random.choice(runs))

    async def _merge(self, container: LeaseContainer, beside: Sequence[FeedRange]) -> None:
        first = self._random.randrange(len(beside) - 1)
        names = [x.id for x in beside[first : first + self._random.choice([2, 2, 3])]]
        self._world.tell(f"merge by hand {names}")
        patience = self._random.uniform(1, 60)
        await self._insist(lambda: merge(self._leased(container), names, patience=patience))

    def _leased(self, container: LeaseContainer) -> LeasedFeed:
        return make.leased(self.feed(), container, self._world.lease_settings)

    async def _insist(self, do: Callable[[], Awaitable[T]]) -> T | None:
        """Do it, and again until it is done; return ``None`` where it is refused."""
        while True:
            try:
                done = await do()
            except UserError as refused:
                self._world.tell(f"refused: {refused}")
                self._world.checker.hit(Probe.SPLIT_REFUSED)
                return None
            except _FAILURES:
                await asyncio.sleep(1)
            else:
                self._world.tell("done by hand")
                return done

    async def edit(self) -> None:
        """Give some lease by hand to a host that does not exist."""
        await self._about_some_lease("edit the lease of", self._edit)

    async def _edit(self, container: LeaseContainer, lease: Lease) -> None:
        stored = await container.read(lease.range_id)
        if stored is None or stored.ended:
            return
        absent = HostName("absent"), Incarnation("absent-1")
        edited = self._random.choice(
            [
                replace(stored, owner=None, incarnation=None),
                replace(stored, owner=absent[0], incarnation=absent[1]),
                replace(stored, next_owner=absent[0]),
                replace(stored, stamp=None),
            ]
        )
        await container.replace(edited.without_position())

    async def _about_some_lease(
        self, doing: str, do: Callable[[LeaseContainer, Lease], Awaitable[None]]
    ) -> None:
        """Do it to some lease that is open; once, whatever comes of it."""
        container = self.container()
        with suppress(*_FAILURES):
            leases = [x for x in await container.list() if not x.ended and x.epoch]
            if leases:
                chosen = self._random.choice(leases)
                self._world.tell(f"{doing} {chosen.range_id}")
                await do(container, chosen)
