"""What a host raises that has stopped, but not in order."""

from collections.abc import Collection

from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import Failure

_NAMED = 20


class StopIncomplete(Failure):
    """The host has stopped, and not everything ended in order. Nothing is lost.

    ``cut_off`` are ranges whose work in hand was cancelled, ``left_to_expire`` those whose
    leases could not be released; ``not_closed`` those that were cancelled with no change in
    hand, as a rule in the observer's ``open`` or ``close``.
    """

    def __init__(
        self,
        cut_off: Collection[RangeId],
        left_to_expire: Collection[RangeId],
        not_closed: Collection[RangeId] = (),
    ) -> None:
        super().__init__(cut_off, left_to_expire, not_closed)
        self.cut_off = cut_off
        self.left_to_expire = left_to_expire
        self.not_closed = not_closed

    def __str__(self) -> str:
        parts = []
        if self.cut_off:
            parts.append(
                f"work in hand was cut off ({_names(self.cut_off)}) and comes "
                f"again; give it more time (host.stop_timeout)"
            )
        if self.not_closed:
            parts.append(
                f"no change was in hand, but the observer did not open or close in time "
                f"({_names(self.not_closed)}); what does it wait for?"
            )
        if self.left_to_expire:
            parts.append(
                f"leases could not be released, others get them when they expire "
                f"({_names(self.left_to_expire)})"
            )
        return f"the host stopped, but not in order: {'; '.join(parts)}"


def _names(ranges: Collection[RangeId]) -> str:
    """Name the first few of them, and say how many more there are."""
    first = ", ".join(sorted(ranges)[:_NAMED])
    more = len(ranges) - _NAMED
    return f"{first}, and {more} more" if more > 0 else first
