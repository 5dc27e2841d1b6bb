"""The only loop of a host that writes leases that this host does not read.

Each round lists leases and members, with a heartbeat where that is one request, decides
(``host.decide``), and does this host's part: it acquires, asks for and takes leases, gives back
what it does not read, creates the leases that are to come, and deletes what is over.

Every write here is one attempt, and one that any host may make at any time. What another host
won, or what got no answer, is listed again in the next round: a claim without an answer is
unknown, never owned. A round that has much to do (a host that starts over thousands of ranges)
begins nothing more once it has lasted for ``balance_interval``, or twice as long as it took to
decide, and the next one follows at once: what an owner must see in its listing of the leases
that it has already may not wait for those that are still to come.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.host.decide import Decision, HostView, decide
from changefeed.host.discovery import Discovery
from changefeed.host.events import HostEvents
from changefeed.host.load_meter import coarse
from changefeed.host.owned_lease import acquire
from changefeed.host.settings import Settings
from changefeed.host.worker import WorkerPool
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.deaths import Deaths
from changefeed.leases.errors import LeaseConflict, checkpoint_is_lost
from changefeed.leases.fleet import (
    Fleet,
    FleetWatch,
    LeaseListing,
    ListedAt,
    ListFleet,
)
from changefeed.leases.fleet_record import refuse_other_checkpoints
from changefeed.leases.keymap import KeyMap, NewLease
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.plan import Action
from changefeed.leases.timing import FleetRules
from changefeed.leases.updating import evict, fence_owner, update_lease
from changefeed.runtime.calls import for_each
from changefeed.runtime.clock import Clock
from changefeed.runtime.errors import StoreUnavailable

_AT_ONCE = 16
_CREATED_AT_ONCE = 8
_FIRST_BATCH = 64


class Coordinator:
    """The rounds of one host. ``stopping`` says whether to take nothing more. ``list_fleet``
    may send a heartbeat with a listing, where that is one request. ``ended`` are incarnations
    of this host that have ended, and how.
    """

    def __init__(
        self,
        me: HostName,
        incarnation: Incarnation,
        settings: Settings,
        rules: FleetRules,
        *,
        container: LeaseContainer,
        pool: WorkerPool,
        discovery: Discovery,
        events: HostEvents,
        random: Random,
        clock: Clock,
        wall: Callable[[], float],
        stopping: Callable[[], bool],
        list_fleet: ListFleet,
        ended: Mapping[str, str],
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._rules = rules
        self._handoff = settings.leases.max_handoff_time
        self._deaths_after = partial(
            Lease.deaths_after,
            incarnation=incarnation,
            read=settings.observer.max_unacknowledged,
            ended=ended,
        )
        self._container = container
        self._pool = pool
        self._discovery = discovery
        self._events = events
        self._random = random
        self._clock = clock
        self._wall = wall
        self._stopping = stopping
        self._listing = LeaseListing(list_fleet, clock)
        self._batch = _FIRST_BATCH
        self._tried = frozenset[RangeId]()
        self._watch = FleetWatch(self._rules.judged, me=me)
        self._own = HostView(name=me)
        self._keymap = KeyMap(())
        self._highest_epoch = 0
        self._round_ends = clock()
        self._left = False
        self._fencing = asyncio.Lock()
        self._fenced: set[tuple[HostName | None, Incarnation | None]] = set()
        self.listed_at: float | None = None
        """When the last round was over."""

    async def run(self, list_now: asyncio.Event) -> None:
        """Do rounds until asked to stop; ``list_now`` has the next one begin at once."""
        while not self._stopping():
            jitter = self._random.uniform(0.9, 1.1)
            try:
                decision = await self.round()
                now = self.listed_at = self._clock()
                again = self._left or decision.again
                wait = 0.0 if again else decision.wait(now=now, jitter=jitter)
            except StoreUnavailable as error:
                wait = self._rules.shown.balance_interval * jitter
                self._events.retrying("balance", error, wait)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await list_now.wait()
            list_now.clear()

    async def round(self) -> Decision:
        """List, decide, and act. Raise what container and feed raise."""
        asked = self._clock()
        # A worker that ends meanwhile gives up its lease: the listing may not show it yet.
        self._own = dataclasses.replace(self._own, reading={*self._pool.workers})
        leases, members = await self._listing.list_fleet()
        at = ListedAt(asked=asked, answered=self._clock(), wall=self._wall())
        self._watch.judge_by(self._rules.judged)
        fleet = self._watch.take(leases, members, at)
        ranges = self._discovery.ranges
        keymap = self._keymap = KeyMap(
            fleet.leases.values(),
            root=self._discovery.root,
            ranges=ranges.listed,
            sub_range=self._discovery.sub_range,
            begun=self._keymap.begun,
        )
        decision = decide(fleet, keymap, self._own, ranges, self._rules, handoff=self._handoff)
        self._own = decision.own
        self._fenced.clear()
        self._highest_epoch = max(self._highest_epoch, *(x.epoch for x in leases), 0)
        reports = fleet.reporter == self._me
        self._events.listed(fleet, fleet.unassigned(decision.readable) if reports else {})
        self._pool.listed(fleet, decision.splits)
        gaps = [x.range for x in decision.gaps]
        begins = self._discovery.begins = decision.begins and self._discovery.root is None
        if begins or decision.asks or {x.id for x in gaps} - self._discovery.starts.keys():
            self._discovery.look(gaps)
        if decision.again:
            self._listing.doubt()  # the next one is to be whole
        decided, self._left = self._clock(), False
        # What took long to list, or to decide, leaves as long for its work.
        self._round_ends = max(asked + self._rules.shown.balance_interval, 2 * decided - asked)
        await self._act(fleet, decision)
        self._events.balanced(sum(not x.ended for x in leases))
        return decision

    async def _act(self, fleet: Fleet, decision: Decision) -> None:
        failed: StoreUnavailable | None = None
        try:
            await self._create(decision)
            await self._delete(decision.deletes)
        except StoreUnavailable as error:  # which may hold for what is new alone
            failed = error
        await for_each(decision.steps, partial(self._in_turn, fleet=fleet), at_once=_AT_ONCE)
        if failed is not None:
            raise failed
        for member in fleet.forgotten:
            await self._container.remove_member(member)
            self._listing.doubt()  # a listing of what was written shows no record that is gone

    # leases that are to come, and those that are over

    async def _create(self, decision: Decision) -> None:
        """Create leases: half of the round is for what is there already. Have the next listing
        follow at once where there is more to do.

        Other hosts that start create some of them, too: each begins elsewhere, and lists what
        is left after ever larger batches. Else each of a hundred hosts would create each of ten
        thousand leases.
        """
        starts = self._discovery.starts
        gaps = {x.range_id: x for x in decision.gaps if x.range_id in starts}
        new = {x.range_id: x for x in decision.new_leases}
        names, done = [*(gaps | new)], set[RangeId]()
        first = int(self._random.random() * len(names)) if len(names) > self._batch else 0
        batch = [*names[first:], *names[:first]][: self._batch]
        assert batch or not names, f"none of {len(names)} leases to create is tried"
        ends = (self._clock() + self._round_ends) / 2

        async def create(name: RangeId) -> None:
            if self._clock() >= ends:
                return
            if name in new:
                await self._come(new[name])
            else:
                await self._fill(replace(gaps[name], checkpoint=Checkpoint(starts[name])))
            done.add(name)

        await for_each(batch, create, at_once=_CREATED_AT_ONCE)
        # What was tried before, and is wanted still, waits for the next listing in its time.
        self._left |= len(done) < len(names) or not done <= self._tried
        self._tried = frozenset(done)
        self._batch = 2 * self._batch if len(batch) < len(names) else _FIRST_BATCH

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
            # The lease has ended, and its checkpoint, which no host reads any more, is lost.
            await evict(self._container, wanted)
        else:
            await self._write(wanted)

    async def _fill(self, wanted: Lease) -> None:
        assert wanted.position is not None, f"{wanted.range_id!r} would begin nowhere"
        assert wanted.owner is None, f"{wanted.range_id!r} is not {wanted.owner!r}'s yet"
        if (await self._container.create(wanted)).sign_of_life == wanted.sign_of_life:
            self._events.created(wanted)

    async def _delete(self, leases: Iterable[tuple[Lease, str]]) -> None:
        for lease, reason in leases:
            unread = lease.ended or lease.owner is None
            assert unread, f"lease {lease.range_id!r} is being read"
            with suppress(LeaseConflict):  # another host did, or will
                await self._container.delete(lease)
                self._events.deleted(lease, reason)
            self._listing.doubt()

    # leases that are there

    async def _in_turn(self, step: tuple[Action, Lease], fleet: Fleet) -> None:
        action, lease = step
        if self._stopping():
            return
        if self._clock() >= self._round_ends:
            self._left = True
            return
        try:
            await self._do(action, lease, fleet)
        except LeaseConflict as error:
            if error.stored is None:
                self._listing.doubt()
            self._events.conflict(lease, action.name.lower())

    async def _do(self, action: Action, lease: Lease, fleet: Fleet) -> None:
        match action:
            case Action.HAND_OVER:
                assert lease.owner == self._me, f"{lease.range_id!r} is not ours to give up"
                deaths = self._deaths_after(lease)  # an earlier start of ours may have had it
                await self._write(_given_up(lease, fleet.alive, deaths))
            case Action.WITHDRAW:
                if await update_lease(self._container, lease.range_id, self._withdrawn):
                    self._events.requested(lease, "withdrawn")
            case Action.STEAL:
                if await update_lease(self._container, lease.range_id, self._request(lease)):
                    self._events.requested(lease, "asked")
            case Action.ACQUIRE:
                await self._acquire(lease, "available" if lease.owner is None else "own")
            case Action.ACQUIRE_EXPIRED:
                await self._fence(lease, fleet)
                await self._acquire(lease, "expired")
            case Action.ROB:
                await self._acquire(lease, "stolen")
                self._own = self._own.with_steal(lease, fleet, now=self._clock())

    async def _write(self, lease: Lease) -> None:
        """Write a lease that has no worker of ours."""
        await self._container.replace(lease.stamped(stamp=self._wall()))

    async def _acquire(self, lease: Lease, how: str) -> None:
        assert how != "expired" or (lease.owner, lease.incarnation) in self._fenced, (
            f"lease {lease.range_id!r}: a heartbeat of {lease.owner!r} may be on its way"
        )
        assert how in ("available", "own") or lease.owner != self._me, (
            f"{self._me!r} lives, and has {lease.range_id!r}"
        )
        is_stolen = how == "stolen"  # its owner lives
        take = partial(
            Lease.taken_by,
            host=self._me,
            incarnation=self._incarnation,
            deaths=lease.deaths if is_stolen else self._deaths_after(lease),
        )
        owned = await acquire(
            self._container,
            await self._beginning(lease),
            taken=take,
            rules=self._rules,
            clock=self._clock,
            wall=self._wall,
        )
        if owned is None:
            refuse_other_checkpoints(await self._container.fleet())
            await self._pause(lease.range_id, checkpoint_is_lost(lease.range_id))
            return
        self._events.acquired(owned.lease, owned.stored.position, how, lease.owner)
        self._pool.start(owned)

    async def _beginning(self, lease: Lease) -> Lease:
        """Let a lease that no host has owned begin where its parents have ended, and its epochs
        above all that were seen: a range may come back under its name, or its lease have been
        deleted, and epochs only grow.
        """
        if lease.epoch:
            return lease
        start = self._keymap.start_of(lease)
        stored = None if start is None else await self._container.read(lease.range_id)
        if start is not None and stored is not None and not stored.epoch:
            if stored.position is None:
                above = replace(stored, epoch=self._highest_epoch)
                lease = await evict(self._container, above, lost=start)
            elif stored.checkpoint != start:
                lease = await self._container.replace(stored.restarted_at(start))
        return replace(lease, epoch=max(lease.epoch, self._highest_epoch))

    async def _pause(self, range_id: RangeId, reason: str) -> None:
        """Let a range that we have and do not read wait for a person; the next listing
        reports it.
        """

        def pause(stored: Lease) -> Lease | None:
            ours = self._is_ours_unread(stored, read=self._pool.workers)
            return stored.released().paused_because(reason) if ours else None

        await update_lease(self._container, range_id, pause)

    async def _fence(self, lease: Lease, fleet: Fleet) -> None:
        """Fence the owner of an expired lease, once a round for all leases that it has. Raise
        ``LeaseConflict`` if it may live.
        """
        owner = (lease.owner, lease.incarnation)
        async with self._fencing:
            if owner not in self._fenced:
                record = None if lease.owner is None else fleet.members.get(lease.owner)
                if not await fence_owner(self._container, lease, record):
                    raise LeaseConflict(lease, None, "its owner has shown a sign of life")
                self._fenced.add(owner)

    def _withdrawn(self, stored: Lease) -> Lease | None:
        return stored.requested_by(None) if stored.next_owner == self._me else None

    def _request(self, planned: Lease) -> Callable[[Lease], Lease | None]:
        """Ask for a lease, if it still is in the hands that the plan took it from."""

        def request(stored: Lease) -> Lease | None:
            same = (stored.owner, stored.epoch) == (planned.owner, planned.epoch)
            return stored.requested_by(self._me) if same else None

        return request

    # at the end

    async def release_unserved(self) -> None:
        """Withdraw what this host has requested, and release what came too late.

        A request that is still there could be granted to a host that is gone. Once it is
        withdrawn, nothing more can come; what was granted meanwhile is found in the second
        listing.
        """
        for _ in range(2):
            read = [*self._pool.workers]  # released by their workers while we list
            for lease in await self._container.list():
                with suppress(LeaseConflict):
                    if self._is_ours_unread(lease, read=read):
                        await self._write(_given_up(lease, (), lease.deaths))
                    elif lease.next_owner == self._me:
                        await update_lease(self._container, lease.range_id, self._withdrawn)

    def _is_ours_unread(self, lease: Lease, *, read: Collection[RangeId]) -> bool:
        """Whether it is ours, and neither a worker nor a call that is stuck can use it."""
        return (
            lease.owner == self._me
            and lease.incarnation in (None, self._incarnation)
            and lease.range_id not in read
            and lease.range_id not in self._pool.stuck
        )


def _given_up(lease: Lease, living: Collection[HostName], deaths: Deaths) -> Lease:
    """Give up a lease that this host does not read: to the host that asked, or to any."""
    given = lease.handed_over() if lease.next_owner in living else lease.released()
    return replace(given, deaths=deaths)


def _with_load(child: Lease, parents: Sequence[Lease]) -> Lease:
    """Give the sub-range of a hot range its part of the load, and no rest before it moves."""
    for parent in parents:
        load = parent.known_load
        if parent.end is not None and parent.end.by == "split" and load is not None:
            part = coarse(load / len(parent.end.children), None)
            return replace(child, load=part, cooling=True)
    return child
