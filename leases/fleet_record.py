"""The record of a fleet: its id, its feed, where it began, and what all its hosts go by.

Positions mean nothing in another feed. A container of Cosmos DB, or an event log, that is
deleted and created again has the same address, ranges and positions, and other changes under
them. While hosts run their feed notices. What was recreated while no host ran is noticed here,
at the next start: the first host writes down what its feed is, beside the leases.

Where ownership and checkpoints are kept apart, both stores carry the id of the fleet. So
checkpoints of another fleet, or a store that was emptied, are no checkpoints that were lost.
A store of ownership that was emptied is found again: the id is that of the checkpoints.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import FleetRecord, RangeEnd
from changefeed.runtime.errors import StoreRefused, StoreUnavailable

_ATTEMPTS = 10


async def join_fleet(
    container: LeaseContainer,
    feed: str,
    change: Callable[[FleetRecord], FleetRecord] = lambda x: x,
) -> FleetRecord:
    """Return the record of the fleet, which the first host makes; ``feed`` is the identity of
    its feed, and ``change`` has the record say what a host brings along.

    Raise ``StoreRefused`` if there are leases and they are about another feed, or if the
    checkpoints are those of another fleet. A container without leases takes any feed.
    """

    def joined(found: FleetRecord) -> FleetRecord:
        refuse_other_checkpoints(found)
        return change(found.of_feed(feed))

    return await _updated(container, partial(require_feed, container, feed), joined)


async def require_feed(container: LeaseContainer, feed: str) -> FleetRecord:
    """Return the record. Raise as ``join_fleet`` for another feed, and write nothing. Commands
    that change some leases ask this first.
    """
    assert feed, "a feed has an identity"
    found = await container.fleet()
    if found.feed not in (None, feed) and await container.list():
        raise StoreRefused(
            f"the leases are about another feed ({found.feed}) than the one at its address now "
            f"({feed}): it was deleted and recreated, or the address of the leases is that "
            f"of another fleet. Positions of the one mean nothing in the other: name other "
            f"leases, or start all ranges again with: changefeed reset --all --to=beginning"
        )
    return found


async def adopt_feed(container: LeaseContainer, feed: str) -> FleetRecord:
    """Let the leases be about this feed, and the checkpoints be theirs, whatever they were
    before. Commands that have moved all leases call this.
    """
    return await _updated(container, container.fleet, lambda x: x.of_feed(feed))


def changed_to(record: FleetRecord, expiration: float, balance: str) -> FleetRecord:
    """Return the record with the rules of a host that starts; others remember the old ones."""
    same = record.expiration in (0.0, expiration)
    before = record.before if same else max(record.before, record.expiration)
    return replace(record, expiration=expiration, balance=balance, before=before)


async def settle_root(container: LeaseContainer, root: RangeEnd) -> RangeEnd:
    """Settle where the fleet began, once; return this, or what another has settled before."""

    def settled(found: FleetRecord) -> FleetRecord:
        return replace(found, root=root) if found.root is None else found

    stored = await _updated(container, container.fleet, settled)
    assert stored.root is not None, "the record that was written has a root"
    return stored.root


def refuse_other_checkpoints(record: FleetRecord) -> None:
    """Raise ``StoreRefused`` if the checkpoints are not those of the fleet. A record that has
    no id is of a store of ownership that is new, or was emptied: it gets that of the
    checkpoints.
    """
    if not record.id or record.checkpoints == record.id:
        return
    found = "has none of this fleet" if not record.checkpoints else "has those of another fleet"
    raise StoreRefused(
        f"the store of checkpoints {found}: it was emptied, or its address "
        f"(leases.checkpoints) is that of another. Put the right one in its place; or give "
        f"this one the positions that were saved (changefeed positions import FILE); or "
        f"start all ranges again with: changefeed reset --all --to=beginning"
    )


async def _updated(
    container: LeaseContainer,
    read: Callable[[], Awaitable[FleetRecord]],
    change: Callable[[FleetRecord], FleetRecord],
) -> FleetRecord:
    """Write what ``change`` makes of the record, if that is another; return what is stored."""
    for _ in range(_ATTEMPTS):
        found = await read()
        wanted = change(found)
        stored = found if wanted == found else await container.put_fleet(wanted)
        if stored is not None:
            return stored
    raise StoreUnavailable("others write the record of the fleet at the same time")
