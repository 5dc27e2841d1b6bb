"""Giving a fleet back the positions and the lineage that were saved before.

Every lease of the container becomes what the document says of its range: position, end, pause.
Leases that the document does not have are deleted: they are of ranges that began after it was
written, and are created again when what held their keys is read to its end once more.

Each lease is written under a new epoch without an owner, so that nothing a former owner still
has under way can follow. No host may live: one that does creates and moves leases itself. What
fails half-way is finished by another restore of the same document.
"""

import enum
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease, require_checkpoint
from changefeed.leases.updating import evict

_TRIES = 10


class LeaseChange(enum.Enum):
    """What happens to a lease."""

    CREATE = "created"
    MOVE = "moved"
    KEEP = "stays"
    DELETE = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRestore:
    """One lease: as it is ``stored``, and as it is ``wanted``; one of them may be missing."""

    range_id: RangeId
    stored: Lease | None
    wanted: Lease | None

    @property
    def change(self) -> LeaseChange:
        if self.stored is None:
            return LeaseChange.CREATE
        if self.wanted is None:
            return LeaseChange.DELETE
        same = _facts(self.wanted) == _facts(self.stored) and self.stored.owner is None
        return LeaseChange.KEEP if same else LeaseChange.MOVE


def steps_to(wanted: Collection[Lease], stored: Collection[Lease]) -> Sequence[LeaseRestore]:
    """Return what to do, in order: what is deleted last, as its keys are read by no other
    lease until then. Those that are wanted must carry their positions.
    """
    named = {x.range_id: x for x in wanted}
    there = {x.range_id: x for x in stored}
    names = [*sorted(named), *sorted(there.keys() - named.keys())]
    return [LeaseRestore(range_id=x, stored=there.get(x), wanted=named.get(x)) for x in names]


def _facts(lease: Lease) -> tuple[object, ...]:
    return lease.checkpoint, lease.end, lease.paused


async def carry_out(container: LeaseContainer, step: LeaseRestore) -> None:
    """Do one step. Raise ``LeaseConflict`` where a host wrote meanwhile."""
    match step:
        case LeaseRestore(stored=None, wanted=Lease() as wanted):
            await _create(container, wanted)
        case LeaseRestore(stored=Lease() as stored, wanted=None):
            await container.delete(stored)
        case LeaseRestore(
            stored=Lease() as stored, wanted=Lease() as wanted, change=LeaseChange.MOVE
        ):
            await _move(container, stored, wanted)


async def _create(container: LeaseContainer, wanted: Lease) -> None:
    made = await container.create(wanted)
    whole = await container.read(made.range_id)
    if whole is None or _facts(whole) != _facts(wanted):
        raise LeaseConflict(wanted, whole, "a host has created it meanwhile")


async def _move(container: LeaseContainer, stored: Lease, wanted: Lease) -> None:
    """Raise the epoch first: it shuts out any host that still writes under an older one."""
    checkpoint = require_checkpoint(wanted)
    vacant = await evict(container, stored, lost=checkpoint)
    moved = replace(vacant.reset_to(checkpoint), end=wanted.end, paused=wanted.paused)
    await container.replace(moved.stamped(stamp=time.time()))


async def read_all(container: LeaseContainer) -> Sequence[Lease] | None:
    """Return every lease whole, with the lineage of one moment; ``None`` if it kept changing.

    Positions may be of moments a little apart, each as it was checkpointed. But no range has
    ended, or named, between the first and the last. A lease whose checkpoint is lost has no
    position.
    """
    before = _lineage(await container.list())
    for _ in range(_TRIES):
        found = [await container.read(x) for x in sorted(before)]
        whole = [x for x in found if x is not None]
        after = _lineage(await container.list())
        if before == _lineage(whole) == after:
            return whole
        before = after
    return None


def _lineage(leases: Collection[Lease]) -> Mapping[RangeId, bool]:
    return {x.range_id: x.ended for x in leases}
