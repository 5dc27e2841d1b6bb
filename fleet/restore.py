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
from dataclasses import dataclass, replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease, require_checkpoint
from changefeed.leases.updating import vacate


class Change(enum.Enum):
    """What happens to a lease."""

    CREATE = "created"
    MOVE = "moved"
    KEEP = "stays"
    DELETE = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One lease: as it is ``stored``, and as it is ``wanted``; one of them may be missing."""

    change: Change
    stored: Lease | None = None
    wanted: Lease | None = None

    def __post_init__(self) -> None:
        assert (self.stored is None) == (self.change is Change.CREATE), f"not there: {self}"
        assert (self.wanted is None) == (self.change is Change.DELETE), f"not wanted: {self}"

    @property
    def range_id(self) -> RangeId:
        lease = self.wanted or self.stored
        assert lease is not None, "a step is about a lease"
        return lease.range_id


def steps_to(wanted: Collection[Lease], stored: Collection[Lease]) -> Sequence[Step]:
    """Return what to do, in order: what is deleted last, as its keys are read by no other
    lease until then. Those that are wanted must carry their positions.
    """
    named = {x.range_id: x for x in wanted}
    there = {x.range_id: x for x in stored}
    kept = [_step(lease, there.get(name)) for name, lease in sorted(named.items())]
    gone = sorted(there.keys() - named.keys())
    steps = [*kept, *(Step(change=Change.DELETE, stored=there[x]) for x in gone)]
    assert len(steps) == len(there.keys() | named.keys()), "one step for each lease"
    return steps


def _step(wanted: Lease, stored: Lease | None) -> Step:
    if stored is None:
        return Step(change=Change.CREATE, wanted=wanted)
    same = _facts(wanted) == _facts(stored) and stored.owner is None
    return Step(change=Change.KEEP if same else Change.MOVE, stored=stored, wanted=wanted)


def _facts(lease: Lease) -> tuple[object, ...]:
    return lease.checkpoint, lease.end, lease.paused


async def carry_out(container: LeaseContainer, step: Step) -> None:
    """Do one step. Raise ``LeaseConflict`` where a host wrote meanwhile."""
    match step.change:
        case Change.CREATE:
            assert step.wanted is not None, "what is created is wanted"
            made = await container.create(step.wanted)
            whole = await container.read(made.range_id)
            if whole is None or _facts(whole) != _facts(step.wanted):
                raise LeaseConflict(step.wanted, whole, "a host has created it meanwhile")
        case Change.MOVE:
            assert step.wanted is not None, "what is moved is wanted elsewhere"
            assert step.stored is not None, "what is moved is there"
            await _move(container, step.stored, step.wanted)
        case Change.DELETE:
            assert step.stored is not None, "what is deleted is there"
            await container.delete(step.stored)


async def _move(container: LeaseContainer, stored: Lease, wanted: Lease) -> None:
    """Raise the epoch first: it shuts out any host that still writes under an older one."""
    checkpoint = require_checkpoint(wanted)
    vacant = await vacate(container, stored, lost=checkpoint)
    moved = replace(vacant.reset_to(checkpoint), end=wanted.end, paused=wanted.paused)
    await container.replace(moved.stamped(stamp=time.time()))


async def read_all(container: LeaseContainer, *, tries: int = 10) -> Sequence[Lease] | None:
    """Return every lease whole, with the lineage of one moment; ``None`` if it kept changing.

    Positions may be of moments a little apart, each as it was checkpointed. But no range has
    ended, or named, between the first and the last. A lease whose checkpoint is lost has no
    position.
    """
    before = _lineage(await container.list())
    for _ in range(tries):
        found = [await container.read(x) for x in sorted(before)]
        whole = [x for x in found if x is not None]
        after = _lineage(await container.list())
        if before == _lineage(whole) == after:
            return whole
        before = after
    return None


def _lineage(leases: Collection[Lease]) -> Mapping[RangeId, bool]:
    return {x.range_id: x.ended for x in leases}
