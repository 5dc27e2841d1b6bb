"""What an operator splits and merges ranges of, and what cannot be split or merged."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from changefeed.feeds.feed import Feed, RangeId
from changefeed.fleet.phrases import no_lease
from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.leases.operations.pause import is_paused_by
from changefeed.runtime.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedFeed:
    """What an operator splits and merges ranges of.

    ``say`` is told what a command waits for.
    """

    feed: Feed
    container: LeaseContainer
    settings: LeaseSettings
    say: Callable[[str], None] = lambda _: None

    async def leases(self) -> Sequence[Lease]:
        """List all, and let the feed look at its ranges. Raise ``UserError`` where hosts of
        another kind own some.
        """
        leases = await self.container.list()
        await self.feed.ranges()
        members = {x.name for x in await self.container.members()}
        owners = {x.owner for x in leases if x.owner and not x.has_owner_of_ours}
        foreign = sorted(owners - members)
        if foreign:
            raise UserError(
                f"{', '.join(foreign)} is a host of another kind, which would read on what was "
                f"split or merged: stop those hosts first"
            )
        return leases


def leases_of(known: Mapping[RangeId, Lease], range_ids: Sequence[RangeId]) -> Sequence[Lease]:
    """Return those of these ranges. Raise ``UserError`` for a range that has none."""
    for name in range_ids:
        if name not in known:
            raise UserError(no_lease(name, known))
    return [known[x] for x in range_ids]


def open_leases(
    leases: Collection[Lease], range_ids: Sequence[RangeId], command: str
) -> Sequence[Lease]:
    """Return the leases that a command is to stop. Raise ``UserError`` for what cannot be."""
    found = leases_of({x.range_id: x for x in leases}, range_ids)
    for lease in found:
        name = lease.range_id
        if lease.ended:
            raise UserError(f"range {name} has ended: its successors have its keys now")
        if not lease.epoch:
            raise UserError(
                f"range {name} has not been read yet: try again when a host has taken it"
            )
        if lease.paused is not None and not is_paused_by(command, lease):
            raise UserError(f"range {name} is paused ({lease.paused}): resume it first")
    return found
