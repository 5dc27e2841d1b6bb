"""Which leases of a snapshot are shown, and in which order."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from changefeed.host.snapshot import LeaseStatus


class Sort(enum.StrEnum):
    """Names in the order of the alphabet, figures the largest first."""

    RANGE = "range"
    OWNER = "owner"
    LAG = "lag"
    LATE = "late"
    """By the age of the first change that is not done."""
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """``pattern`` is for names of ranges or owners, or a state (``changefeed.host.states``):
    ``*`` stands for anything.
    """

    sort: Sort = Sort.RANGE
    pattern: str = "*"

    def of(
        self, leases: Sequence[LeaseStatus], rates: Mapping[str, float]
    ) -> Sequence[LeaseStatus]:
        """Return what is shown. A figure that is not known comes last."""
        shown = [x for x in leases if self._matches(x)]

        def key(x: LeaseStatus) -> tuple[object, ...]:
            figure: float | None
            match self.sort:
                case Sort.RANGE:
                    return (x.range,)
                case Sort.OWNER:
                    return (x.owner is None, x.owner or "", x.range)
                case Sort.LAG:
                    figure = x.lag
                case Sort.LATE:
                    figure = x.lag_seconds
                case Sort.RATE:
                    figure = rates.get(x.range)
            return (figure is None, -(figure or 0), x.range)

        return sorted(shown, key=key)

    def _matches(self, lease: LeaseStatus) -> bool:
        named = (lease.range, lease.owner, lease.next_owner, lease.state, *troubles(lease))
        return any(x is not None and fnmatchcase(x, self.pattern) for x in named)


def troubles(lease: LeaseStatus) -> Sequence[str]:
    """Return what is wrong with its observer, all of it: a state is the worst alone."""
    since = {"failing": lease.failing_since, "stuck": lease.stuck_since}
    return [name for name, at in since.items() if at is not None]
