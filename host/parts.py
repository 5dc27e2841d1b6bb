"""Splitting a range without the feed, and merging its parts again, from outside of any host.

Whatever is split or merged is paused first: its owner finishes what it has in hand,
checkpoints and releases it. A new epoch without an owner follows, so that no write of a former
owner counts any more. An owner that does not release is dead or stuck, and loses its lease
as to a steal: after ``max_handoff_time`` plus the expiration.

To split, leases of the parts are created where the range stands, with it as their parent; they
wait. Then it is marked as ended, in one write: before that nothing has happened, after it the
parts are read. Nothing is lost or repeated, and the order by key holds as at each split.

To merge, the parts must be at one position. They are where their positions are equal, or
where each has been read to its end, and that is the same for all: positions in a feed that is
being written to differ, and the earliest would repeat what others have checkpointed. So a
merge waits for a moment of rest, and is given up without one. The merged lease is created
there, waits, and each part is marked as ended. A merge that was cut off between two of these
writes is completed by asking for it again; until then its ranges stay paused.

Limits: hosts of another kind (.NET) do not know ranges that have ended, and would read
on what was split; a fleet in which one owns a lease is refused.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from random import Random
from uuid import uuid4

from changefeed.feeds.feed import (
    Continuation,
    Feed,
    FeedRange,
    RangeEnded,
    RangeId,
    ReadsParts,
    RemembersRanges,
    Successor,
)
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import LeaseSettings
from changefeed.host.workers.successors import create_successors
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import HostName, Lease, WriteId
from changefeed.leases.operations.pause import MERGING, SPLITTING, pause
from changefeed.leases.operations.release import vacate
from changefeed.leases.operations.update import update_lease
from changefeed.leases.stores import require_continuation
from changefeed.runtime.errors import UserError

_TRIES = 20  # others write these leases, too
_LOOK = 0.25
_NEXT_ATTEMPT = 1.0
_LONGEST_CREATION = 60.0
_LONGEST_REST = 5.0
_AGAIN = "range {} is left as it is, as the lease container does not answer: run this again"
_OPERATOR = HostName("operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedFeed:
    """What an operator splits and merges ranges of. The feed must read parts."""

    feed: Feed
    container: LeaseContainer
    settings: LeaseSettings

    @property
    def parts(self) -> ReadsParts:
        """Raise ``UserError`` for a feed that reads no parts."""
        if not isinstance(self.feed, ReadsParts):
            raise UserError("the ranges of this feed cannot be read in parts")
        return self.feed

    async def leases(self) -> Sequence[Lease]:
        """List all, and let the feed look at its ranges. Raise ``UserError`` where hosts of
        another kind own some.
        """
        leases = await self.container.list()
        if isinstance(self.feed, RemembersRanges):
            self.feed.remember_ranges(x.range for x in leases)
        await self.feed.ranges()
        members = {x.name for x in await self.container.members()}
        owners = {x.owner for x in leases if x.owner and x.incarnation is None}
        foreign = sorted(owners - members)
        if foreign:
            raise UserError(
                f"{', '.join(foreign)} is a host of another kind, which would read on what was "
                f"split or merged: stop those hosts first"
            )
        return leases


async def split(leased: LeasedFeed, range_id: RangeId, into: int) -> Sequence[FeedRange]:
    """Replace the lease of a range by those of ``into`` parts; return these.

    Raise ``UserError`` where it cannot be done, and what feed and containers raise; the
    range is then read on as before.
    """
    leases = await leased.leases()
    (lease,) = _open_leases(leases, [range_id], SPLITTING)
    cut = [replace(x, parents=(range_id,)) for x in leased.parts.cut(lease.range, into)]
    _refuse_taken(leases, cut)
    async with _stopped(leased, [range_id], SPLITTING) as (stopped,):
        start = require_continuation(stopped)
        successors = [Successor(range=x, start=start) for x in cut]
        await _create_parts(leased, stopped.range, successors)
    await _finish(leased.container, stopped)
    return cut


async def merge(
    leased: LeasedFeed, range_ids: Sequence[RangeId], *, patience: float
) -> FeedRange:
    """Replace the leases of adjacent parts by one of all their keys; return that range.

    Wait for up to ``patience`` seconds until they are at one position. Raise ``UserError``
    where they are not, or it cannot be done, and what feed and containers raise.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    while True:
        merged = await _merge_now(leased, range_ids)
        if merged is not None:
            return merged
        if clock() >= until:
            raise UserError(
                f"ranges {', '.join(range_ids)} are at different positions: a merge waits "
                f"until all have been read to the end, and the feed rests for a moment. They "
                f"are read on as before; try again when their lag is 0"
            )
        await asyncio.sleep(_NEXT_ATTEMPT)


async def _merge_now(leased: LeasedFeed, range_ids: Sequence[RangeId]) -> FeedRange | None:
    """Merge parts if they are at one position."""
    leases = await leased.leases()
    found = {x.range_id: x for x in leases}
    joined = _joined(leased.parts, found, range_ids)
    begun = await _begun(leased.container, joined, found)
    if begun is not None and any(found[x].ended for x in range_ids):
        return joined if await _completed(leased.container, begun, range_ids) else None
    _open_leases(leases, range_ids, MERGING)
    if begun is None:
        _refuse_taken(leases, [joined])
    stored = [await leased.container.read(x) for x in range_ids]
    if await _position_of_all(leased.feed, [x for x in stored if x is not None]) is None:
        return None  # without stopping any
    stopped = await _at_one_position(leased, joined, range_ids, leases)
    if stopped is None:
        return None
    await _finish_all(leased.container, stopped)
    return joined


async def _at_one_position(
    leased: LeasedFeed,
    joined: FeedRange,
    range_ids: Sequence[RangeId],
    leases: Collection[Lease],
) -> Sequence[Lease] | None:
    """Stop parts, and create the lease that goes on where they are; or let them go on."""
    aligned: Sequence[Lease] | None = None
    with suppress(_Apart):
        async with _stopped(leased, range_ids, MERGING) as stopped:
            position = await _position_of_all(leased.feed, stopped)
            if position is None:
                raise _Apart
            aligned = [await _advanced(leased.container, x, position) for x in stopped]
            for lease in leases:
                if _is_left_over(lease, joined, range_ids):
                    await _end_left_over(leased.container, lease)
            await _create_merged(leased.container, Lease(range=joined, continuation=position))
    return aligned


async def _finish_all(container: LeaseContainer, stopped: Sequence[Lease]) -> None:
    """End all of them; where others have written to one, let all go on as before."""
    for n, lease in enumerate(stopped):
        try:
            await _finish(container, lease)
        except (LeaseConflict, LeaseGone):
            for before in stopped[:n]:
                await _reopen(container, before.range_id)
            for after in stopped[n:]:
                with suppress(ContainerUnavailable, LeaseConflict):
                    await update_lease(container, after.range_id, partial(_resumed, MERGING))
            raise


async def _completed(
    container: LeaseContainer, begun: Lease, range_ids: Sequence[RangeId]
) -> bool:
    """End the rest of the parts of a merge that was cut off, if they are where it has left
    them; else let all of them go on as before.
    """
    stored = [await container.read(x) for x in range_ids]
    rest = [x for x in stored if x is not None and not x.ended]
    kept = all(x.paused == MERGING and x.continuation == begun.continuation for x in rest)
    if kept and None not in stored:
        for lease in rest:
            await _finish(container, lease)
        return True
    for range_id in range_ids:
        await _reopen(container, range_id)
    return False


async def _reopen(container: LeaseContainer, range_id: RangeId) -> None:
    """Let a part go on that was ended for a merge which did not come about."""
    for attempt in range(_TRIES):
        with suppress(ContainerUnavailable, LeaseConflict):
            stored = await container.read(range_id)
            if stored is None or not stored.ended:
                return
            again = replace(stored.without_continuation(), ended=False, paused=None)
            await container.replace(_written(again))
            return
        await asyncio.sleep(min(_LOOK * 2**attempt, _LONGEST_REST))
    raise ContainerUnavailable(_AGAIN.format(range_id))


class _Apart(Exception):
    """The parts are not at one position."""


async def _position_of_all(feed: Feed, leases: Collection[Lease]) -> Continuation | None:
    """Return the position at which all parts are: the same, or the end of each.

    Raise ``UserError`` for a range that goes on in others.
    """
    positions = {require_continuation(x) for x in leases}
    if len(positions) == 1:
        return positions.pop()
    ends = set[Continuation]()
    for lease in leases:
        try:
            page = await feed.read(lease.range_id, require_continuation(lease), 1)
        except RangeEnded as ended:
            raise UserError(f"{ended}, as its reader is about to find out") from ended
        if page.changes:
            return None
        ends.add(page.continuation)
    return ends.pop() if len(ends) == 1 else None


def _open_leases(
    leases: Collection[Lease], range_ids: Sequence[RangeId], reason: str
) -> Sequence[Lease]:
    """Return the leases that are to be stopped. Raise ``UserError`` for what cannot be."""
    known = {x.range_id: x for x in leases}
    for name in range_ids:
        lease = known.get(name)
        if lease is None:
            raise UserError(
                f"there is no lease of a range {name!r}; changefeed status lists them"
            )
        if lease.ended:
            raise UserError(f"range {name} has ended: its successors have its keys now")
        if not lease.epoch:
            raise UserError(
                f"range {name} has not been read yet: try again when a host has taken it"
            )
        if lease.paused not in (None, reason):
            raise UserError(f"range {name} is paused ({lease.paused}): resume it first")
    return [known[x] for x in range_ids]


def _refuse_taken(leases: Collection[Lease], wanted: Sequence[FeedRange]) -> None:
    """Raise ``UserError`` if a range to be has a lease from before, that was read."""
    read = {x.range_id for x in leases if x.epoch}
    for found in wanted:
        if found.id in read:
            raise UserError(
                f"there is a lease of range {found.id} already, from an earlier split or "
                f"merge: hosts delete it once what came of it has a checkpoint. Try again then"
            )


def _joined(
    feed: ReadsParts, found: dict[RangeId, Lease], range_ids: Sequence[RangeId]
) -> FeedRange:
    """Raise ``UserError`` for ranges that do not touch, and those whose keys are not known."""
    missing = [x for x in range_ids if x not in found]
    if missing:
        raise UserError(
            f"there is no lease of a range {missing[0]!r}; changefeed status lists them"
        )
    parts = sorted((found[x].range for x in range_ids), key=lambda x: x.low)
    touching = [x.high == y.low for x, y in pairwise(parts)]
    if not touching or not all(touching) or not parts[0].high:
        raise UserError("name two or more ranges whose keys touch; changefeed status has them")
    return replace(feed.joined(parts), parents=tuple(x.id for x in parts))


async def _begun(
    container: LeaseContainer, joined: FeedRange, found: dict[RangeId, Lease]
) -> Lease | None:
    """Return the lease of a merge of these very parts that was cut off, whole."""
    lease = found.get(joined.id)
    if lease is None or lease.epoch or lease.ended or lease.range.parents != joined.parents:
        return None
    return await container.read(joined.id)


def _is_left_over(lease: Lease, joined: FeedRange, merged: Collection[RangeId]) -> bool:
    """Whether a lease waits for one of the parts that are merged: an attempt was cut off."""
    waits = not (lease.epoch or lease.ended) and not set(merged).isdisjoint(lease.range.parents)
    return waits and lease.range_id != joined.id and lease.range.shares_keys_with(joined)


async def _end_left_over(container: LeaseContainer, lease: Lease) -> None:
    await update_lease(container, lease.range_id, lambda x: None if x.epoch else x.finished())


@asynccontextmanager
async def _stopped(
    leased: LeasedFeed, range_ids: Sequence[RangeId], reason: str
) -> AsyncIterator[Sequence[Lease]]:
    """Stop ranges; yield their leases, whole, in an epoch that belongs to no host.

    They stay so after the block, and are resumed if it raises.
    """
    container = leased.container
    longest = leased.settings.max_handoff_time + leased.settings.expiration
    until = asyncio.get_running_loop().time() + longest
    try:
        await pause(container, range_ids, reason)
        yield [await _vacated(container, x, reason, until=until) for x in range_ids]
    except BaseException:
        for range_id in range_ids:
            with suppress(ContainerUnavailable, LeaseConflict):
                await update_lease(container, range_id, partial(_resumed, reason))
        raise


def _resumed(reason: str, lease: Lease) -> Lease | None:
    return lease.paused_because(None) if lease.paused == reason else None


async def _vacated(
    container: LeaseContainer, range_id: RangeId, reason: str, *, until: float
) -> Lease:
    """Wait for the owner of a paused range to release it, but not past ``until``."""
    clock = asyncio.get_running_loop().time
    lost: list[LeaseConflict] = []
    while len(lost) < _TRIES:
        stored = await container.read(range_id)
        if stored is None:
            raise LeaseGone(Lease(range=FeedRange(id=range_id)), "deleted meanwhile")
        if stored.ended:
            raise UserError(f"range {range_id} has ended meanwhile: others have its keys now")
        if stored.paused != reason:
            raise UserError(f"range {range_id} was resumed meanwhile, or paused by others")
        if stored.owner is not None and clock() < until:
            await asyncio.sleep(_LOOK)
            continue
        try:
            return await vacate(container, stored)
        except LeaseConflict as conflict:
            lost.append(conflict)
    raise lost[-1]


async def _create_parts(
    leased: LeasedFeed, ended: FeedRange, successors: Sequence[Successor]
) -> None:
    """Raise ``UserError`` if not all of them wait where the range has come to."""
    events = HostEvents(_OPERATOR)
    try:
        async with asyncio.timeout(_LONGEST_CREATION):
            await create_successors(
                ended,
                successors,
                feed=leased.feed,
                container=leased.container,
                retrier=Retrier(events, Random()),  # noqa: S311 - of delays
                events=events,
                check=lambda: None,
            )
    except TimeoutError as error:
        raise ContainerUnavailable("the leases of the parts could not be created") from error
    for x in successors:
        stored = await leased.container.read(x.range.id)
        if stored is not None and stored.epoch:
            await _forget(leased.container, stored)
        if stored is None or stored.ended or stored.epoch or stored.continuation != x.start:
            raise UserError(f"others have written the lease of {x.range.id}: try again")


async def _create_merged(container: LeaseContainer, wanted: Lease) -> None:
    """Create a lease that waits, or let that of an earlier attempt begin where it should."""
    for _ in range(_TRIES):
        await container.create(wanted)
        stored = await container.read(wanted.range_id)
        if stored is not None:
            if stored.epoch:
                await _forget(container, stored)
                raise UserError(
                    f"others have written the lease of {wanted.range_id}: try again"
                )
            if not stored.ended and _place(stored) == _place(wanted):
                return
            begun = replace(stored.begun_at(require_continuation(wanted)), range=wanted.range)
            with suppress(LeaseConflict, LeaseGone):
                await container.replace(begun)
    raise LeaseConflict(wanted, f"others wrote it {_TRIES} times in a row")


async def _forget(container: LeaseContainer, created: Lease) -> None:
    """Delete what we have created with an epoch that it should not have: where checkpoints are
    kept apart, one was left behind under its name. No host may begin there.
    """
    if created.owner is None:
        with suppress(LeaseConflict, LeaseGone):
            await container.delete(created)


def _place(lease: Lease) -> object:
    return lease.continuation, lease.range


async def _advanced(container: LeaseContainer, lease: Lease, position: Continuation) -> Lease:
    """Checkpoint a stopped part where all of them are: what goes on then agrees with each."""
    if lease.continuation == position:
        return lease
    return await container.checkpoint(_written(lease.advanced_to(position)))


async def _finish(container: LeaseContainer, stopped: Lease) -> None:
    """Mark a stopped range as ended, if no other has written to it since."""
    ended = _written(replace(stopped.finished(), paused=None).without_continuation())
    for attempt in range(_TRIES):
        with suppress(ContainerUnavailable):
            if await _is_ended_by(container, ended):
                return
        await asyncio.sleep(min(_LOOK * 2**attempt, _LONGEST_REST))
    raise ContainerUnavailable(_AGAIN.format(stopped.range_id))


async def _is_ended_by(container: LeaseContainer, ended: Lease) -> bool:
    """Write the end of a range; a conflict may be one with our own write, unanswered."""
    try:
        await container.replace(ended)
    except LeaseConflict:
        stored = await container.read(ended.range_id)
        if stored is not None and not stored.ended:
            raise
    return True


def _written(lease: Lease) -> Lease:
    return lease.stamped(write_id=WriteId(uuid4().hex), stamp=time.time())
