"""Whether leases cover the keys of a feed: each once, and by what can still be read.

Hosts keep it so, through splits and merges. What breaks it comes from outside: a lease that
was deleted or edited by hand, restored from a copy, or written by two fleets. Hosts then go
on without a word, and read some keys twice, or never: so it is looked for here.

A lease that was never owned waits for the parents that it names, and may hold their keys.
The limits: leases are listed one after another, so that what running hosts are changing may
look wrong for a moment; and keys are compared by bounds, which not every feed gives.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from changefeed.feeds.errors import FeedError, FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, RangeEnded, RangeId, StartAt
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerError, ContainerUnavailable
from changefeed.leases.lease import Lease
from changefeed.leases.parts import with_parts
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.runtime.for_each import for_each

_AT_ONCE = 8
_AGAIN = "if hosts run, check again in a minute: they may be changing this now"
_RESET = "start it again where you choose: changefeed reset {} --to=…"
_OTHER_LEASES = (
    "name other leases, or start all ranges again with: changefeed reset --all --to=beginning"
)


async def check_coverage(
    feed: Feed, container: LeaseContainer, *, start: StartAt
) -> AsyncIterator[Diagnostic]:
    """Yield what is wrong between leases and their feed, without a change to either.

    ``start`` is where hosts begin a range that has no lease. Raises as feeds and containers
    do.
    """
    leases = await container.list()
    if not leases:
        return
    kept = await container.feed_identity()
    if kept not in {None, feed.identity}:
        yield problem(
            "leases",
            f"they are about another feed ({kept}) than the one at its address now "
            f"({feed.identity}): it was deleted and recreated, or these leases are those "
            f"of another fleet",
            _OTHER_LEASES,
        )
        return
    ranges = with_parts(feed, await feed.ranges(), leases)
    placed = [located(x, ranges) for x in leases]
    for one in overlaps(placed):
        yield one
    inherits = feed.successors_inherit_positions
    for one in uncovered(placed, ranges, inherits=inherits, start=start):
        yield one
    async for one in _unreadable(feed, container, placed):
        yield one


def overlaps(leases: Collection[Lease]) -> Iterator[Diagnostic]:
    """Find the leases that hold the same keys, where neither waits for the other."""
    living = [x for x in leases if not x.ended]
    parents = {x.range_id: x.range.parents for x in living if not (x.epoch or x.owner)}
    before = {x.range_id: ancestors(x.range_id, parents) for x in living}
    for a, b in _sharing_keys(living):
        if a.range_id not in before[b.range_id] and b.range_id not in before[a.range_id]:
            yield _overlapping(a, b)


def uncovered(
    leases: Collection[Lease], ranges: Sequence[FeedRange], *, inherits: bool, start: StartAt
) -> Iterator[Diagnostic]:
    """Find the keys of a feed that no lease holds, though there are leases.

    ``inherits`` says that a range which is gone is read through those that hold its keys
    now, as in Cosmos DB: there, hosts create leases of parts, unless the bounds of one are
    not known, or the lease of the very range has ended.
    """
    living = [x for x in leases if not x.ended]
    find = _uncovered_now if inherits else _without_any
    return find(ranges, leases, living, start)


def _uncovered_now(
    ranges: Sequence[FeedRange],
    leases: Collection[Lease],
    living: Collection[Lease],
    start: StartAt,
) -> Iterator[Diagnostic]:
    ended = {x.range_id for x in leases if x.ended}
    for found in ranges:
        if any(_holds_all(x.range, found) for x in living):
            continue
        gaps = _gaps(found, [x.range for x in living])
        known = all(x.range.high for x in living)
        if gaps and not known and (found.id in ended or gaps != [found]):
            yield _never_read(found, gaps)
        elif gaps == [found] and found.id not in ended:
            yield _without_lease(found, start)
        elif gaps:
            yield _part_without_lease(found, gaps, start)


def _without_any(
    ranges: Sequence[FeedRange],
    leases: Collection[Lease],
    living: Collection[Lease],
    start: StartAt,
) -> Iterator[Diagnostic]:
    known = {x.range_id for x in leases}
    waiting = {x.range_id for x in living}
    for found in ranges:
        if found.id in known:
            continue
        if waiting.isdisjoint(found.parents):
            yield _without_lease(found, start)
        else:
            waiting.add(found.id)


def _overlapping(a: Lease, b: Lease) -> Diagnostic:
    return problem(
        "leases",
        f"the leases of {_named(a.range)} and {_named(b.range)} overlap: what is in both is "
        f"delivered twice, and not in order",
        f"stop all hosts, delete one of the two from the lease container, and check again; "
        f"{_AGAIN}",
    )


def _without_lease(found: FeedRange, start: StartAt) -> Diagnostic:
    return warning(
        "leases",
        f"{_named(found)} has no lease, nor has one that it follows: hosts will create it, "
        f"and begin at feed.start ({start}), not where one may have been",
        f"if that is not what you want: changefeed reset {found.id} --to=… after they did; "
        f"{_AGAIN}",
    )


def _part_without_lease(
    found: FeedRange, gaps: Sequence[FeedRange], start: StartAt
) -> Diagnostic:
    return warning(
        "leases",
        f"no lease holds the keys with hashes from {_bounds(gaps)} of range {found.id}: hosts "
        f"will create one, and begin at feed.start ({start}), not where one may have been",
        f"if that is not what you want: changefeed reset, after they did; {_AGAIN}",
    )


def _never_read(found: FeedRange, gaps: Sequence[FeedRange]) -> Diagnostic:
    return problem(
        "leases",
        f"no lease holds the keys with hashes from {_bounds(gaps)} of range {found.id}, and no "
        f"host will create one: the bounds of another lease are not known",
        f"stop all hosts, delete the leases of {found.id} and those without bounds, and start "
        f"one: it creates them again, at feed.start; {_AGAIN}",
    )


def _bounds(gaps: Sequence[FeedRange]) -> str:
    return ", ".join(f"{x.low or '00'} to {x.high}" for x in gaps)


def located(lease: Lease, ranges: Sequence[FeedRange]) -> Lease:
    """Give the bounds to a lease without any, where the feed has its range."""
    for x in ranges if not lease.range.high else ():
        if x.id == lease.range_id:
            return replace(lease, range=replace(lease.range, low=x.low, high=x.high))
    return lease


def _sharing_keys(leases: Collection[Lease]) -> Iterator[tuple[Lease, Lease]]:
    by_low = sorted((x for x in leases if x.range.high), key=lambda x: x.range.low)
    for n, a in enumerate(by_low):
        for b in islice(by_low, n + 1, None):
            if b.range.low >= a.range.high:
                break
            yield a, b


def ancestors(range_id: RangeId, parents: Mapping[RangeId, Sequence[RangeId]]) -> set[RangeId]:
    """Collect the ranges that have to end before a lease is owned for the first time."""
    found: set[RangeId] = set()
    ahead = [range_id]
    while ahead:
        new = set(parents.get(ahead.pop(), ())) - found
        found |= new
        ahead += new
    return found


def _holds_all(held: FeedRange, found: FeedRange) -> bool:
    """Whether a lease without bounds is the range's own, or that of an ancestor."""
    return not held.high and (held.id == found.id or held.id in found.parents)


@dataclass(frozen=True, slots=True)
class _Reading:
    feed: Feed
    container: LeaseContainer

    async def tried(self, lease: Lease) -> Diagnostic | None:
        """Read one change at the position of a lease; return what keeps a host from it."""
        name = lease.range_id
        try:
            stored = await self.container.read(name)
            return None if stored is None or stored.ended else await self._read(stored)
        except (ContainerUnavailable, FeedUnavailable) as error:
            return warning("leases", f"range {name}: {error}", "check again later")
        except ContainerError as error:
            return problem("leases", f"range {name}: {error}")
        except FeedError as error:
            return problem("leases", f"range {name}: {error}", _RESET.format(name))

    async def _read(self, stored: Lease) -> Diagnostic | None:
        name = stored.range_id
        if stored.continuation is None:
            return None
        try:
            await self.feed.read(stored.range, stored.continuation, 1)
        except RangeEnded as ended:
            successors = ", ".join(x.range.id for x in ended.successors)
            text = f"range {name} has ended where its lease is; it goes on in {successors}"
            return fine("leases", text) if successors else None
        except RangeUnknown:
            text = f"the feed has no range {name}, and never had"
            return problem("leases", text, _OTHER_LEASES)
        return None


async def _unreadable(
    feed: Feed, container: LeaseContainer, leases: Sequence[Lease]
) -> AsyncIterator[Diagnostic]:
    reading = _Reading(feed, container)
    living = [x for x in leases if not x.ended]
    for found in await for_each(living, reading.tried, at_once=_AT_ONCE):
        if found is not None:
            yield found


def _gaps(found: FeedRange, held: Sequence[FeedRange]) -> list[FeedRange]:
    """Return the parts of a range that none of some others holds, in order."""
    gaps, low = [], found.low
    for x in sorted(held, key=lambda x: x.low):
        if not x.shares_keys_with(found):
            continue
        if x.low > low:
            gaps.append(replace(found, low=low, high=x.low))
        low = max(low, x.high)
    if low < found.high:
        gaps.append(replace(found, low=low))
    return gaps


def _named(found: FeedRange) -> str:
    bounds = f" ({found.low or '00'} to {found.high})" if found.high else ""
    return f"range {found.id}{bounds}"
