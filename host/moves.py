"""What changed between two looks at the leases of a fleet: who took what, and from whom."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from changefeed.leases.lease import Lease

Kind = Literal[
    "created", "acquired", "moved", "released", "requested", "paused", "resumed", "ended"
]


class Holding(NamedTuple):
    """What of a lease is looked at."""

    owner: str | None = None
    next_owner: str | None = None
    paused: str | None = None
    ended: bool = False


class LeaseMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``at`` is when it was seen, in seconds since 1970. ``of`` is the host that had the lease
    before, ``to`` the one that has it now, or asks for it; ``note`` why it was paused.
    """

    at: float
    range: str
    kind: Kind
    of: str | None = None
    to: str | None = None
    note: str | None = None


def holdings(leases: Iterable[Lease]) -> Mapping[str, Holding]:
    return {x.range_id: Holding(x.owner, x.next_owner, x.paused, x.ended) for x in leases}


def moves_between(
    before: Mapping[str, Holding], after: Mapping[str, Holding], *, at: float
) -> list[LeaseMove]:
    """Return what happened, by range. What came and went in between was not seen."""
    if before == after:
        return []
    return [
        move
        for name, new in sorted(after.items())
        if (old := before.get(name)) != new
        for move in _of_range(name, old, new, at)
    ]


def _of_range(name: str, old: Holding | None, new: Holding, at: float) -> Iterator[LeaseMove]:
    if old is None:
        yield LeaseMove(at=at, range=name, kind="created")
        old = Holding()
    if new.paused != old.paused:
        kind: Kind = "resumed" if new.paused is None else "paused"
        yield LeaseMove(at=at, range=name, kind=kind, note=new.paused)
    if new.ended and not old.ended:
        yield LeaseMove(at=at, range=name, kind="ended", of=old.owner)
    elif new.owner != old.owner:
        yield LeaseMove(
            at=at, range=name, kind=_kind(old.owner, new.owner), of=old.owner, to=new.owner
        )
    if new.next_owner is not None and new.next_owner != old.next_owner:
        yield LeaseMove(at=at, range=name, kind="requested", of=new.owner, to=new.next_owner)


def _kind(old: str | None, new: str | None) -> Kind:
    if new is None:
        return "released"
    return "acquired" if old is None else "moved"
