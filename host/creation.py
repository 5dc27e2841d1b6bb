"""The leases that are to come, and those that are over: created and deleted by any host.

Each write here is one attempt, and idempotent or compare-and-set: several hosts may make it at
once, and one of them wins.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random

from msgspec.structs import replace

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.decide import Decision
from changefeed.host.events import HostEvents
from changefeed.host.load_meter import coarse
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.keymap import NewLease
from changefeed.leases.lease import Lease
from changefeed.leases.updating import evict
from changefeed.runtime.clock import Clock
from changefeed.runtime.gather import for_each

_AT_ONCE = 8
_FIRST_BATCH = 64


class LeaseCreator:
    """Creates and deletes what the decisions of one host say. ``doubt`` asks for a listing of
    all leases.

    Other hosts that start create some of them, too: each begins elsewhere, and lists what is
    left after ever larger batches. Else each of a hundred hosts would create each of ten
    thousand leases.
    """

    def __init__(
        self,
        container: LeaseContainer,
        *,
        events: HostEvents,
        doubt: Callable[[], None],
        random: Random,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        self._container = container
        self._events = events
        self._doubt = doubt
        self._random = random
        self._clock = clock
        self._wall = wall
        self._batch = _FIRST_BATCH
        self._tried = frozenset[RangeId]()

    async def carry_out(
        self, decision: Decision, starts: Mapping[RangeId, Position], *, until: float
    ) -> bool:
        """Create and delete leases; return whether the next listing is to follow at once.

        ``starts`` is where gaps begin, as far as that is known. Half of the time ``until`` the
        round ends is for what is there already.
        """
        gaps = {x.range_id: x for x in decision.gaps if x.range_id in starts}
        new = {x.child.range.id: x for x in decision.new_leases}
        names, done = [*(gaps | new)], set[RangeId]()
        first = int(self._random.random() * len(names)) if len(names) > self._batch else 0
        batch = [*names[first:], *names[:first]][: self._batch]
        assert batch or not names, f"none of {len(names)} leases to create is tried"
        ends = (self._clock() + until) / 2

        async def create(name: RangeId) -> None:
            if self._clock() >= ends:
                return
            if name in new:
                await self._come(new[name])
            else:
                await self._fill(replace(gaps[name], checkpoint=Checkpoint(starts[name])))
            done.add(name)

        await for_each(batch, create, at_once=_AT_ONCE)
        # What was tried before, and is wanted still, waits for the next listing in its time.
        left = len(done) < len(names) or not done <= self._tried
        self._tried = frozenset(done)
        self._batch = 2 * self._batch if len(batch) < len(names) else _FIRST_BATCH
        await self._delete(decision.deletes)
        return left

    async def _come(self, new: NewLease) -> None:
        """Create the lease of a child where its parents have ended."""
        found = new.child.range
        if not found.parents:  # for who draws where ranges come from
            found = dataclasses.replace(found, parents=tuple(x.range_id for x in new.parents))
        child = Lease(range=found, checkpoint=new.start)
        if new.revived is None:
            await self._fill(_with_load(child, new.parents))
            return
        with suppress(LeaseConflict):
            await self._revive(new.revived.revived_as(new.child.range, new.start))
            self._events.created(child)

    async def _revive(self, wanted: Lease) -> None:
        stored = await self._container.read(wanted.range_id)
        if stored is not None and stored.position is None:
            # The checkpoint of a tombstone, which nobody has read for long, is lost.
            await evict(self._container, wanted)
        else:
            await self._container.replace(wanted.stamped(stamp=self._wall()))

    async def _fill(self, wanted: Lease) -> None:
        assert wanted.position is not None, f"{wanted.range_id!r} would begin nowhere"
        assert wanted.owner is None, f"{wanted.range_id!r} is not {wanted.owner!r}'s yet"
        if (await self._container.create(wanted)).sign_of_life == wanted.sign_of_life:
            self._events.created(wanted)

    async def _delete(self, leases: Iterable[tuple[Lease, str]]) -> None:
        for lease, reason in leases:
            assert lease.ended or not lease.epoch, f"lease {lease.range_id!r} is being read"
            with suppress(LeaseConflict):  # another host did, or will
                await self._container.delete(lease)
                self._events.deleted(lease, reason)
            self._doubt()


def _with_load(child: Lease, parents: Sequence[Lease]) -> Lease:
    """Give the sub-range of a hot range its part of the load, and no rest before it moves."""
    for parent in parents:
        load = parent.known_load
        if parent.end is not None and parent.end.by == "split" and load is not None:
            part = coarse(load / len(parent.end.children), None)
            return replace(child, load=part, cooling=True)
    return child
