"""A round of balancing: list leases and members, and do this host's actions of the plan.

Every write here is one attempt. What another host won, or what got no answer, is listed
again in the next round: a claim without an answer is unknown, never owned. A round that has
much to do (a host that starts over thousands of ranges) begins nothing more after
``balance_interval``, and the next one follows at once: what an owner must see in its listing
of the leases that it has already may not wait for those that are still to come.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.balancing.balancer import (
    Balancer,
    Listing,
    Steal,
    actions,
)
from changefeed.host.balancing.unread_ranges import reporter, unread_ranges
from changefeed.host.events import HostEvents
from changefeed.host.settings import Settings
from changefeed.host.workers.owned_lease import acquire
from changefeed.host.workers.pool import WorkerPool
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import (
    LeaseConflict,
    LeaseGone,
    LeaseLost,
    MemberConflict,
    checkpoint_is_lost,
)
from changefeed.leases.expiry import Moment
from changefeed.leases.fleet import Fleet, fence_owner
from changefeed.leases.fleet_record import refuse_other_checkpoints
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.listing import LeaseListing, SendAlong
from changefeed.leases.plan import Action
from changefeed.leases.updating import update_lease, vacate
from changefeed.observers.observer import CloseReason
from changefeed.runtime.clock import Clock
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16


class Rebalancer:
    """The rounds of one host. ``stopping`` says whether to take nothing more.

    Calls ``look_for_ranges`` when leases are to be created: a range has ended, or leases are
    gone that had not, as in a Redis that was flushed. ``send_along`` sends a
    heartbeat with a listing, where that is one request. ``ranges`` returns those that
    the feed had when it was asked last.
    """

    def __init__(
        self,
        me: HostName,
        incarnation: Incarnation,
        settings: Settings,
        *,
        container: LeaseContainer,
        balancer: Balancer,
        pool: WorkerPool,
        events: HostEvents,
        clock: Clock,
        wall: Callable[[], float],
        stopping: Callable[[], bool],
        look_for_ranges: Callable[[], None],
        send_along: SendAlong,
        ranges: Callable[[], Collection[FeedRange]] = lambda: (),
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._settings = settings
        self._container = container
        self._balancer = balancer
        self._pool = pool
        self._events = events
        self._wall = wall
        self._stopping = stopping
        self._look_for_ranges = look_for_ranges
        self._ranges = ranges
        self._highest_epoch = 0
        self._unended: frozenset[RangeId] = frozenset()
        self._readable_before: Collection[RangeId] = ()
        self._keymap = KeyMap(())
        self._clock = clock
        self._listing = LeaseListing(container, clock)
        self._send_along = send_along
        self._round_ends = clock()
        self._left = False
        self._fencing = asyncio.Lock()
        self._fenced: set[tuple[HostName | None, Incarnation | None]] = set()

    async def run_once(self) -> bool:
        """Do one round; return whether something was left for the next. Raise what container
        and feed raise.
        """
        asked = self._clock()
        self._round_ends = asked + self._settings.leases.timing.balance_interval
        self._left = False
        leases, members = await self._listing.list_fleet(self._send_along)
        at = Moment(asked=asked, answered=self._clock(), wall=self._wall())
        self._look_for_vanished(leases)
        self._highest_epoch = max(self._highest_epoch, *(x.epoch for x in leases), 0)
        self._events.listed_paused({x.range_id: x.paused for x in leases if x.paused})
        self._events.loads(self._pool.leases.values())
        fleet = self._balancer.fleet
        listing = Listing(
            leases=leases,
            readable=self._readable(KeyMap(leases, ranges=self._ranges())),
            members=members,
            reading=self._pool.leases,
            ranges=self._ranges(),
        )
        view = self._balancer.observe(listing, at)
        self._pool.listed(leases, asked=asked)
        self._pool.split(view.to_split)
        self._fenced.clear()
        self._events.activity.listed(leases, members)
        reports = reporter(view.listed) == self._me
        unread = unread_ranges(view.listed, listing.readable) if reports else {}
        self._events.listed_unread(unread)
        if view.listed.alive != fleet:
            self._events.members_changed(view.listed.alive)
        await for_each(
            actions(view), partial(self._in_turn, fleet=view.listed), at_once=_AT_ONCE
        )
        for member in view.listed.forgotten:
            with suppress(MemberConflict):
                await self._container.remove_member(member)
            self._listing.doubt()  # a listing of what was written shows no record that is gone
        self._events.balanced(sum(not x.ended for x in leases))
        return self._left

    def _readable(self, keymap: KeyMap) -> Sequence[Lease]:
        """Return the leases that a host may own, by two listings in a row where none has had
        one: a listing may be torn.
        """
        if keymap.due():
            self._look_for_ranges()
        readable = keymap.readable()
        found = [x for x in readable if x.epoch or x.range_id in self._readable_before]
        self._left |= len(found) < len(readable)
        self._readable_before = {x.range_id for x in readable}
        assert not any(x.ended or x.paused for x in found), "nobody may own these"
        self._keymap = keymap
        return found

    def _look_for_vanished(self, leases: Sequence[Lease]) -> None:
        if not self._unended <= {x.range_id for x in leases}:
            self._look_for_ranges()
        self._unended = frozenset(x.range_id for x in leases if not x.ended)

    async def release_unserved(self) -> None:
        """Withdraw what this host has requested, and release what came too late.

        A request that is still there could be granted to a host that is gone. Once it is
        withdrawn, nothing more can come; what was granted meanwhile is found in the second
        listing.
        """
        for _ in range(2):
            for lease in await self._container.list():
                with suppress(LeaseConflict, LeaseGone):
                    if self._is_ours_unread(lease):
                        await self._write(lease.released())
                    elif lease.next_owner == self._me:
                        await update_lease(self._container, lease.range_id, self._withdrawn)

    def _is_ours_unread(self, lease: Lease) -> bool:
        """Whether it was handed to us, or claimed by us, and no call of ours can run for it."""
        return (
            lease.owner == self._me
            and lease.incarnation in (None, self._incarnation)
            and lease.range_id not in self._pool.ranges
            and lease.range_id not in self._pool.stuck
        )

    async def _in_turn(self, planned: tuple[Action, Lease], fleet: Fleet) -> None:
        action, lease = planned
        if self._stopping():
            return
        if self._clock() >= self._round_ends:
            self._left = True
            return
        try:
            await self._do(action, lease, fleet)
        except (LeaseConflict, LeaseGone, LeaseLost, MemberConflict) as error:
            if isinstance(error, LeaseGone | MemberConflict):
                self._listing.doubt()
            self._events.conflict(lease, action.name.lower())

    async def _do(self, action: Action, lease: Lease, fleet: Fleet) -> None:
        match action:
            case Action.DRAIN:
                paused = lease.paused is not None
                reason = CloseReason.PAUSED if paused else CloseReason.HANDED_OVER
                self._pool.stop(lease.range_id, reason)
            case Action.HAND_OVER:
                assert lease.owner == self._me, f"{lease.range_id!r} is not ours to give up"
                await self._write(_given_up(lease, self._balancer.fleet))
            case Action.WITHDRAW:
                if await update_lease(self._container, lease.range_id, self._withdrawn):
                    self._events.requested(lease, "withdrawn")
            case Action.CLEAR:
                await self._pool.clear_request(lease)
                self._events.requested(lease, "cleared")
            case Action.ACQUIRE:
                await self._acquire(lease, "available" if lease.owner is None else "own")
            case Action.ACQUIRE_EXPIRED:
                assert lease.owner != self._me, (
                    f"{self._me!r} lives, and has {lease.range_id!r}"
                )
                await self._fence_owner(lease, fleet)
                await self._acquire(lease, "expired")
            case Action.STEAL:
                await self._steal(lease)

    async def _write(self, lease: Lease) -> None:
        """Write a lease that carries our name and has no worker."""
        named = lease.stamped(stamp=self._wall())
        await self._container.replace(named)

    async def _acquire(self, lease: Lease, how: str) -> None:
        assert how != "expired" or (lease.owner, lease.incarnation) in self._fenced, (
            f"lease {lease.range_id!r}: a heartbeat of {lease.owner!r} may be on its way"
        )
        owned = await acquire(
            self._container,
            await self._beginning(lease),
            taken=lambda x: x.taken_by(self._me, self._incarnation),
            settings=self._settings.leases,
            clock=self._clock,
            wall=self._wall,
        )
        if owned is None:
            refuse_other_checkpoints(await self._container.fleet())
            await self._pause(lease.range_id, checkpoint_is_lost(lease.range_id))
            return
        self._events.acquired(owned.lease, owned.continuation, how, lease.owner)
        self._pool.start(owned)

    async def _beginning(self, lease: Lease) -> Lease:
        """Let a lease that no host has owned begin where its parents have ended, and its epochs
        above all that were seen: a range may come back under its name, or its lease have been
        deleted, and epochs only grow.
        """
        if lease.epoch:
            return lease
        named = self._keymap.start_of(lease)
        stored = None if named is None else await self._container.read(lease.range_id)
        if named is not None and stored is not None and not stored.epoch:
            if stored.continuation is None:
                lease = await vacate(self._container, stored, lost=named.start)
            elif stored.continuation != named.start:
                lease = await self._container.replace(stored.begun_at(named.start))
        return replace(lease, epoch=max(lease.epoch, self._highest_epoch))

    async def _pause(self, range_id: RangeId, reason: str) -> None:
        """Let a range that we have and do not read wait for a person; the next listing
        reports it.
        """

        def pause(stored: Lease) -> Lease | None:
            ours = self._is_ours_unread(stored)
            return stored.released().paused_because(reason) if ours else None

        await update_lease(self._container, range_id, pause)

    async def _fence_owner(self, lease: Lease, fleet: Fleet) -> None:
        """Fence the owner of an expired lease, once a round for all leases that it has."""
        owner = (lease.owner, lease.incarnation)
        async with self._fencing:
            if owner not in self._fenced:
                record = None if lease.owner is None else fleet.members.get(lease.owner)
                await fence_owner(self._container, lease, record)
                self._fenced.add(owner)

    async def _steal(self, lease: Lease) -> None:
        match self._balancer.steal(lease, now=self._clock()):
            case Steal.REQUEST:
                if await update_lease(self._container, lease.range_id, self._request(lease)):
                    self._events.requested(lease, "asked")
            case Steal.TAKE:
                await self._acquire(lease, "stolen")
                self._balancer.stolen(lease, now=self._clock())
            case Steal.WAIT:
                pass

    def _withdrawn(self, stored: Lease) -> Lease | None:
        return stored.asked_by(None) if stored.next_owner == self._me else None

    def _request(self, planned: Lease) -> Callable[[Lease], Lease | None]:
        """Ask for a lease, if it still is in the hands that the plan took it from."""

        def request(stored: Lease) -> Lease | None:
            same = (stored.owner, stored.epoch) == (planned.owner, planned.epoch)
            return stored.asked_by(self._me) if same else None

        return request


def _given_up(lease: Lease, living: Collection[HostName]) -> Lease:
    """Give up a lease that this host does not read: to the host that asked, or to any."""
    return lease.handed_over() if lease.next_owner in living else lease.released()
