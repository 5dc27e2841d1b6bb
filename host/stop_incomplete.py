"""What a host raises that has stopped, but not in order."""

from collections.abc import Collection

from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import Failure


class StopIncomplete(Failure):
    """The host has stopped, and not everything ended in order. Nothing is lost.

    ``cut_off`` are ranges whose work in hand was cancelled, ``left_to_expire`` those whose
    leases could not be released.
    """

    def __init__(
        self, cut_off: Collection[RangeId], left_to_expire: Collection[RangeId]
    ) -> None:
        super().__init__(cut_off, left_to_expire)
        self.cut_off = cut_off
        self.left_to_expire = left_to_expire

    def __str__(self) -> str:
        parts = []
        if self.cut_off:
            parts.append(
                f"work in hand was cut off ({', '.join(sorted(self.cut_off))}) and comes "
                f"again; give it more time (host.stop_timeout)"
            )
        if self.left_to_expire:
            parts.append(
                f"leases could not be released, others get them when they expire "
                f"({', '.join(sorted(self.left_to_expire))})"
            )
        return f"the host stopped, but not in order: {'; '.join(parts)}"
