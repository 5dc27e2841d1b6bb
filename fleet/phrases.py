"""What more than one operation says, and the page: outcomes, and which ranges are meant."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import UserError


def repeats(again: int | None) -> str:
    """Say what a new position means: ``again`` changes come again, or so many below 0 never."""
    if again is None:
        return "the feed cannot estimate how many changes"
    if again > 0:
        return f"{again:,} delivered again"
    return f"{-again:,} never delivered" if again else "stays where it is"


def no_lease(name: str, known: Collection[str]) -> str:
    """Say that a range has no lease, and what may be meant instead."""
    if not known:
        return (
            f"there is no lease of a range {name!r}, nor of any other: no host has run with "
            f"these leases, or they are those of another fleet"
        )
    near = get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else "changefeed status lists them"
    return f"there is no lease of a range {name!r}; {advice}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of what was done, or what could not be."""

    text: str
    failed: bool = False


def named_leases(
    leases: Collection[Lease], names: Sequence[str], *, also_ended: bool = False
) -> list[Lease]:
    """Return the leases of these ranges. Raise ``UserError`` for one that there is not, or
    that has ended, unless that does not matter.
    """
    known = {x.range_id: x for x in leases}
    found = []
    for name in dict.fromkeys(names):
        lease = known.get(RangeId(name))
        if lease is None:
            raise UserError(no_lease(name, known))
        if lease.ended and not also_ended:
            raise UserError(f"range {name} has ended: its children have its keys now")
        found.append(lease)
    return found


def open_or_named_leases(leases: Collection[Lease], names: Sequence[str]) -> list[Lease]:
    """Return the leases of these ranges; without any, all that have not ended."""
    if names:
        return named_leases(leases, names)
    return sorted((x for x in leases if not x.ended), key=lambda x: x.range_id)
