"""The leases that a range goes on in, created before it counts as ended."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from changefeed.feeds.feed import (
    Continuation,
    Feed,
    FeedRange,
    RangeId,
    Successor,
)
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.operations.look_up import look_up
from changefeed.leases.operations.update import update_lease
from changefeed.leases.parts import below_parts, is_cut, latest, with_parts

SUPERSEDED = "its keys have gone to other ranges"


async def no_proof() -> None:
    """The proof of who acts on a range that has no owner."""


async def create_successors(
    ended: FeedRange,
    successors: Collection[Successor],
    *,
    feed: Feed,
    container: LeaseContainer,
    retrier: Retrier,
    events: HostEvents,
    check: Callable[[], None],
    prove: Callable[[], Awaitable[None]] = no_proof,
    load: float | None = None,
) -> None:
    """Create the leases of the ranges that an ended one goes on in, if they are missing.

    Parts that an owner splits off say their ``load``, and that they came a short while ago.
    ``check`` raises once the ended range may be another's, and nothing is written then. That it
    is not, ``prove`` shows by a write of its lease, before each other write: an operator may
    have released the range, and its next reader may have ended it in other ranges.
    A range that was merged waits for its other parents: for those that have a lease and
    have not ended, and for those whose lease is yet to come, because they can still be
    read and were not read yet. Not for those that are named though they held other keys:
    the reader of what these go on in may delete their leases. Nor, where readers hand on
    their positions, for one that handed its own to the ended range before it could end: hosts
    of other kinds do not wait for parents, and its late end would move what goes on back.
    What one of these reads already, between the two, goes on in the successor by itself.
    """
    leases = await _listed_twice(container, retrier)
    ancestors = _ancestors(ended, leases)
    read = read_descendants(ended, leases, [x.range for x in successors])
    after = _Succession(ended, ancestors, read, feed, container, retrier, events, check, prove)
    going_on = {x.range.id for x in successors}
    waiting = [x for x in leases if _waits_for(ended, x) and x.range_id not in going_on]
    gone = {
        x.range_id
        for x in waiting
        if is_left_over(feed, x) and await after.end_superseded(x.range_id)
    }
    ranges = with_parts(feed, await retrier.call("ranges", feed.ranges), leases)
    unfinished = {x.id: x for x in ranges}
    for lease in leases:
        unfinished[lease.range_id] = lease.range
        if lease.ended or lease.range_id in gone:
            del unfinished[lease.range_id]
    for successor in successors:
        if after.goes_on_from_another(successor.range):
            continue
        found = _below_parts(feed, successor.range, ranges, leases)
        before = {
            x
            for x, y in unfinished.items()
            if _may_share_keys(y, found) and not after.has_handed_on(y, found)
        }
        wanted = Lease(
            range=with_unfinished_parents(found, before),
            continuation=successor.start,
            load=load,
            moved=load is not None,
        )
        await after.create(wanted, successor.start)
    if not _parts_may_be_there(feed, leases, successors):
        return
    check()
    await retrier.call("wait for parts", partial(wait_for_parts, feed, container))


async def _listed_twice(container: LeaseContainer, retrier: Retrier) -> Collection[Lease]:
    """One listing may lack a lease that waits for the range: it would be read beside what the
    range goes on in.
    """
    listed = [await retrier.call("list", container.list) for _ in range(2)]
    return latest(chain.from_iterable(listed)).values()


def is_left_over(feed: Feed, waiting: Lease) -> bool:
    """Whether a lease that waits for a range can be of no use when that ends in others.

    Where parts end with their range, what comes of the range itself waits for all of them.
    """
    return feed.successors_inherit_positions or waiting.range.of is not None


def _below_parts(
    feed: Feed, found: FeedRange, ranges: Collection[FeedRange], leases: Collection[Lease]
) -> FeedRange:
    """Add the parts that hold keys of a range to its parents."""
    if feed.successors_inherit_positions:
        return below_parts(found, [x.range for x in leases if is_cut(x.range)])
    parents = [y for x in ranges if x.id == found.id for y in x.parents]
    return replace(found, parents=tuple(dict.fromkeys([*found.parents, *parents])))


def _parts_may_be_there(
    feed: Feed, leases: Collection[Lease], successors: Collection[Successor]
) -> bool:
    """Whether a successor may have to wait for parts: of what was in parts when leases were
    listed, or of another parent of it by now.
    """
    if feed.successors_inherit_positions:
        return False
    ranges = [*(x.range for x in leases), *(x.range for x in successors)]
    of_several = any(len(x.range.parents) > 1 for x in successors)
    return of_several or any(x.of for x in ranges)


async def wait_for_parts(feed: Feed, container: LeaseContainer) -> None:
    """Let what comes of a range wait for all parts of it that are there by now.

    Its lease is created when the first part has ended, and another may be split meanwhile. Both
    the one who creates it and the one who splits call this after their writes: so one of them
    finds what the other has written.
    """
    if feed.successors_inherit_positions:
        return
    leases = await container.list()
    parts = {x.range_id for x in leases if not x.ended and x.range.of is not None}
    unread = {x.range_id: x for x in leases if not x.epoch and not x.ended}
    may_wait = (x.range.parents and x.range_id not in parts for x in unread.values())
    if not parts or not any(may_wait):
        return
    for found in with_parts(feed, await feed.ranges(), leases):
        lease = unread.get(found.id)
        new = parts.intersection(found.parents)
        if lease is not None and not new.issubset(lease.range.parents):
            try:
                await update_lease(container, found.id, partial(_waiting_for, new))
            except LeaseConflict as error:
                raise ContainerUnavailable(str(error)) from error  # to be tried again


def _waiting_for(parents: Collection[RangeId], lease: Lease) -> Lease | None:
    if lease.epoch:
        return None
    more = sorted(x for x in parents if x not in lease.range.parents)
    waiting = replace(lease.range, parents=(*lease.range.parents, *more))
    return replace(lease, range=waiting) if more else None


@dataclass(frozen=True, slots=True)
class _Succession:
    """What the reader of an ended range writes into other leases."""

    ended: FeedRange
    ancestors: Collection[RangeId]
    read_descendants: Collection[Lease]
    feed: Feed
    container: LeaseContainer
    retrier: Retrier
    events: HostEvents
    check: Callable[[], None]
    prove: Callable[[], Awaitable[None]]

    def has_handed_on(self, older: FeedRange, successor: FeedRange) -> bool:
        """Whether the ended range read all keys of its successor from where ``older`` was."""
        handing = self.feed.successors_inherit_positions and older.id != self.ended.id
        return handing and older.covers(self.ended) and self.ended.covers(successor)

    def goes_on_from_another(self, successor: FeedRange) -> bool:
        """Whether a range that came of the ended one is being read, and will go on in this."""
        return self.feed.successors_inherit_positions and any(
            not x.ended and x.range.covers(successor) for x in self.read_descendants
        )

    async def end_superseded(self, range_id: RangeId) -> bool:
        """End a lease that waits for the range; return whether it does not wait any more.

        It is not deleted: a write that creates it late would create it again.
        """
        while (stored := await self._read(range_id)) is not None:
            if not _waits_for(self.ended, stored):
                return stored.ended
            assert not stored.epoch, f"{range_id!r} is ended, and was read in {stored.epoch}"
            await self._write("end", partial(self._replace, stored.finished()))
            self.events.deleted(stored, SUPERSEDED)
        return True

    async def create(self, wanted: Lease, start: Continuation) -> None:
        """Create a lease; let one that an owner before us created begin where we are now."""
        assert wanted.continuation == start, f"{wanted.range_id!r} would begin elsewhere"
        assert wanted.epoch == 0, f"{wanted.range_id!r} would begin in epoch {wanted.epoch}"
        found = wanted.range
        await self._write("create", partial(self.container.create, wanted))
        while await self._came_before(found.id):
            await self._write("create", partial(self.container.create, wanted))
        while (stored := await self._read(found.id)) is not None:
            if not self._begins_elsewhere(stored, start):
                return
            if stored.continuation is None:  # its checkpoint is lost, and known here alone
                await self._write("delete", partial(self._delete, stored))
                await self._write("create", partial(self.container.create, wanted))
            else:
                await self._write("create", partial(self._replace, stored.begun_at(start)))

    def _begins_elsewhere(self, stored: Lease, start: Continuation) -> bool:
        """Whether a lease that is there already does not begin where the ended range came to.

        An owner before us may have come as far as this, and died. Where readers hand on their
        positions, the range may have lived on since, and the lease would begin too early. Or
        it was ended as superseded, and its keys have come back to it. But it begins where a
        descendant of the ended range says that has read its keys since.
        """
        if stored.epoch:
            return False
        if stored.ended or stored.continuation is None:
            return True
        moved_on = self.feed.successors_inherit_positions and stored.continuation != start
        read_since = any(x.range.covers(stored.range) for x in self.read_descendants)
        return moved_on and not read_since and _waits_for(self.ended, stored)

    async def _came_before(self, range_id: RangeId) -> bool:
        """Delete the tombstone of an ancestor that comes back under its name: of a part that
        was merged, where the feed has split the merged range at the same bounds.
        """
        if range_id not in self.ancestors:
            return False
        stored = await self._read(range_id)
        if stored is None or not (stored.ended and stored.epoch):
            return stored is None
        await self._write("delete", partial(self._delete, stored))
        return True

    async def _read(self, range_id: RangeId) -> Lease | None:
        return await self.retrier.call("read", partial(look_up, self.container, range_id))

    async def _write(self, doing: str, call: Callable[[], Awaitable[object]]) -> None:
        async def checked() -> None:
            self.check()
            # After it was read: whatever another reader writes later moves its version.
            await self.prove()
            await call()

        await self.retrier.call(doing, checked)

    async def _delete(self, stored: Lease) -> None:
        with suppress(LeaseConflict, LeaseGone):
            await self.container.delete(stored)
            self.events.deleted(stored, SUPERSEDED)

    async def _replace(self, wanted: Lease) -> None:
        """Write it, unless others have just written it: it is then read again."""
        with suppress(LeaseConflict, LeaseGone):
            await self.container.replace(wanted)


def _waits_for(ended: FeedRange, lease: Lease) -> bool:
    """Whether a lease was never owned, as it holds keys of a range that is being read."""
    return (
        not (lease.epoch or lease.ended)
        and ended.id in lease.range.parents
        and lease.range.shares_keys_with(ended)
    )


def _ancestors(found: FeedRange, leases: Collection[Lease]) -> Collection[RangeId]:
    """Return the parents of a range, theirs, and so on, as far as these still have leases."""
    parents = {x.range_id: x.range.parents for x in leases}
    known = set[RangeId]()
    next_ones = {*found.parents}
    while next_ones:
        known |= next_ones
        next_ones = {y for x in next_ones for y in parents.get(x, ())} - known
    return known - {found.id}


def read_descendants(
    ended: FeedRange, leases: Collection[Lease], successors: Collection[FeedRange] = ()
) -> Collection[Lease]:
    """Return the leases that come of an ended range and have been read before its end was
    written: hosts of other kinds do not wait for that.

    ``successors`` are what the feed says it goes on in, with their parents from the oldest on.
    Leases may have lost theirs: those hosts copy what they do not know from one to the next.
    """
    ancestors = _ancestors(ended, leases)
    between = {name for x in successors for name in _parents_after(ended.id, x)}
    return [
        x
        for x in leases
        if x.epoch
        and x.range_id not in ancestors  # as a part that was merged again
        and x.range.shares_keys_with(ended)
        and (x.range_id in between or ended.id in _ancestors(x.range, leases))
    ]


def _parents_after(name: RangeId, found: FeedRange) -> tuple[RangeId, ...]:
    if name not in found.parents:
        return ()
    return found.parents[found.parents.index(name) + 1 :]


def _may_share_keys(a: FeedRange, b: FeedRange) -> bool:
    return not (a.high and b.high) or a.shares_keys_with(b)


def with_unfinished_parents(found: FeedRange, unfinished: Collection[RangeId]) -> FeedRange:
    """Leave out the parents that are read to their end."""
    return replace(found, parents=tuple(x for x in found.parents if x in unfinished))


async def delete_lease(
    container: LeaseContainer, lease: Lease, events: HostEvents, reason: str
) -> None:
    try:
        await container.delete(lease)
    except (LeaseConflict, LeaseGone):
        return  # another host did, or will
    events.deleted(lease, reason)
