"""What each host can take, as the member records of hosts say it.

What all hosts have to go by stands in the record of the fleet (``changefeed.leases.fleet``).
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import msgspec

from changefeed.host.settings import LeaseSettings
from changefeed.leases.lease import HostName
from changefeed.leases.load import HostLimits

_CAPACITIES = (0.01, 100.0)  # as the settings have them


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a member record says. One that says nothing is not of a host of ours."""

    capacity: float = msgspec.field(name="leases.capacity")
    max_ranges: int | None = msgspec.field(name="leases.max_ranges", default=None)
    split_hot: bool = msgspec.field(name="leases.split_hot", default=False)

    @property
    def limits(self) -> HostLimits:
        least, most = _CAPACITIES
        sound = least <= self.capacity <= most
        return HostLimits(capacity=self.capacity if sound else 1.0, max_ranges=self.max_ranges)


def said_of(settings: LeaseSettings) -> str:
    """Return what a member record says of a host with these settings, as JSON text."""
    said = _Said(
        capacity=settings.capacity,
        max_ranges=settings.max_ranges,
        split_hot=settings.split_hot,
    )
    return msgspec.json.encode(said).decode()


def limits_by_load(
    fleet: Collection[HostName], said: Mapping[HostName, str]
) -> Mapping[HostName, HostLimits] | None:
    """Return what each host of the fleet can take; ``said`` is what their records say.

    ``None`` where one says nothing, as hosts of another kind do, which keep no record: it would
    undo what others move by load.
    """
    return _limits_where_all(fleet, said, lambda _: True)


def limits_to_split(
    fleet: Collection[HostName], said: Mapping[HostName, str]
) -> Mapping[HostName, HostLimits]:
    """Return what each host can take where all of them split hot ranges, else nothing.

    So none is split in front of a processor of another kind, which does not know parts.
    """
    return _limits_where_all(fleet, said, lambda x: x.split_hot) or {}


def _limits_where_all(
    fleet: Collection[HostName], said: Mapping[HostName, str], agree: Callable[[_Said], bool]
) -> Mapping[HostName, HostLimits] | None:
    found = {x: _said_in(said.get(x, "")) for x in fleet}
    limits = {x: y.limits for x, y in found.items() if y is not None and agree(y)}
    return limits if limits.keys() == found.keys() else None


@lru_cache(maxsize=1024)
def _said_in(text: str) -> _Said | None:
    try:
        return msgspec.json.decode(text or "{}", type=_Said)
    except msgspec.DecodeError:
        return None
