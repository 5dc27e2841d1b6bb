"""Whether leases cover the keys of a feed: each once, and by what can still be read.

Hosts keep it so, through splits and merges. What breaks it comes from outside: a lease that
was deleted or edited by hand, restored from a copy, or written by two fleets. Hosts then go
on without a word, and read some keys twice, or never: so it is looked for here.

The limits: leases are listed one after another, so that what running hosts are changing may
look wrong for a moment; and keys are compared by bounds, which not every feed gives.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

from changefeed.feeds.errors import FeedError, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, RangeEnded, StartAt
from changefeed.leases.container import LeaseContainer
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from changefeed.runtime.calls import for_each
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.runtime.errors import StoreError, Unavailable

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

    ``start`` is where hosts begin keys that have no lease. Raises as feeds and containers
    do.
    """
    leases = await container.list()
    if not leases:
        return
    record = await container.fleet()
    kept = record.feed
    if kept not in {None, feed.identity}:
        yield problem(
            "leases",
            f"they are about another feed ({kept}) than the one at its address now "
            f"({feed.identity}): it was deleted and recreated, or these leases are those "
            f"of another fleet",
            _OTHER_LEASES,
        )
        return
    ranges = await feed.ranges()
    keymap = KeyMap(leases, root=record.root, ranges=ranges, sub_range=feed.sub_range)
    for one in uncovered(keymap, start=start):
        yield one
    async for one in _unreadable(feed, container, [*keymap.leases.values()]):
        yield one


def uncovered(keymap: KeyMap, *, start: StartAt) -> Iterator[Diagnostic]:
    """Find the keys of a feed that are read twice, and those that no lease holds."""
    for a, b in keymap.overlaps():
        yield _overlapping(a, b)
    for low, high in keymap.gaps():
        yield _without_lease(_keys(low, high), start)
    for low, high in keymap.orphans():
        yield _orphaned(_keys(low, high))


def _overlapping(a: Lease, b: Lease) -> Diagnostic:
    return problem(
        "leases",
        f"the leases of {_named(a.range)} and {_named(b.range)} overlap: what is in both is "
        f"delivered twice, and not in order",
        f"stop all hosts, delete one of the two from the lease container, and check again; "
        f"{_AGAIN}",
    )


def _without_lease(keys: str, start: StartAt) -> Diagnostic:
    return warning(
        "leases",
        f"no lease holds the keys {keys}: hosts will create one, and begin at feed.start "
        f"({start}), not where one may have been",
        f"if that is not what you want: changefeed reset, after they did; {_AGAIN}",
    )


def _orphaned(keys: str) -> Diagnostic:
    return problem(
        "leases",
        f"no lease holds the keys {keys}, and no host will create one: it was deleted, and no "
        f"host can tell where they begin, or the feed cannot read them without others",
        f"stop all hosts, give the leases back the positions that were saved (changefeed "
        f"positions import), or start all ranges again (changefeed reset --all); {_AGAIN}",
    )


def _keys(low: str, high: str) -> str:
    return f"with hashes from {low or '00'} to {high}"


async def _unreadable(
    feed: Feed, container: LeaseContainer, leases: Sequence[Lease]
) -> AsyncIterator[Diagnostic]:
    """Read one change at the position of each lease, to find what keeps hosts from it."""

    async def tried(lease: Lease) -> Diagnostic | None:
        name = lease.range_id
        try:
            stored = await container.read(name)
            return None if stored is None or stored.ended else await _read(feed, stored)
        except Unavailable as error:
            return warning("leases", f"range {name}: {error}", "check again later")
        except StoreError as error:
            return problem("leases", f"range {name}: {error}")
        except FeedError as error:
            return problem("leases", f"range {name}: {error}", _RESET.format(name))

    living = [x for x in leases if not x.ended]
    for found in await for_each(living, tried, at_once=_AT_ONCE):
        if found is not None:
            yield found


async def _read(feed: Feed, stored: Lease) -> Diagnostic | None:
    name = stored.range_id
    if stored.position is None:
        return None
    try:
        await feed.read(stored.range, stored.position, 1)
    except RangeEnded as ended:
        children = ", ".join(x.range.id for x in ended.children)
        text = f"range {name} has ended where its lease is; it goes on in {children}"
        return fine("leases", text) if children else None
    except RangeUnknown:
        text = f"the feed has no range {name}, and never had"
        return problem("leases", text, _OTHER_LEASES)
    return None


def _named(found: FeedRange) -> str:
    bounds = f" ({found.low or '00'} to {found.high})" if found.high else ""
    return f"range {found.id}{bounds}"
