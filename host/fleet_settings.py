"""The settings that others of a fleet have to know, as the member records of hosts say them.

Most should be alike, since hosts decide each by its own: who has expired, what is delivered
to which observer, where what it fails on is put. Hosts that differ do different things with
the same range, which may be meant for as long as a rolling restart takes. What a host can
take may differ. Secrets are left out, and of the options of an observer, which may
hold some, only a digest is kept.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import msgspec

from changefeed.host.settings import ObserverSettings, Settings
from changefeed.leases.lease import HostName
from changefeed.leases.load import HostLimits
from changefeed.stores.addresses import without_secrets

_LEASES = (
    "expiration",
    "max_handoff_time",
    "balance",
    "split_hot",
)
_CAPACITIES = (0.01, 100.0)  # as the settings have them
_OBSERVER = ("name", "checkpoint", "concurrency", "timeout", "on_failure")
_DIGITS = 8


def shared_settings(settings: Settings) -> str:
    """Return them as the JSON text of a member record."""
    start = settings.feed.start
    shared = {
        "feed.start": start if isinstance(start, str) else start.isoformat(),
        **{f"leases.{x}": getattr(settings.leases, x) for x in _LEASES},
        "leases.capacity": settings.leases.capacity,
        "leases.max_ranges": settings.leases.max_ranges,
        **{f"observer.{x}": getattr(settings.observer, x) for x in _OBSERVER},
        "observer.options": _digest(settings.observer),
    }
    if settings.observer.on_failure == "dead-letter":
        shared["observer.dead_letters"] = without_secrets(settings.observer.dead_letters)
    return msgspec.json.encode(shared).decode()


class _Balance(msgspec.Struct, frozen=True, kw_only=True):
    """What a member record says of balancing; where it says nothing, by count."""

    balance: str = msgspec.field(name="leases.balance", default="count")
    capacity: float = msgspec.field(name="leases.capacity", default=1.0)
    max_ranges: int | None = msgspec.field(name="leases.max_ranges", default=None)
    split_hot: bool = msgspec.field(name="leases.split_hot", default=False)

    @property
    def limits(self) -> HostLimits:
        least, most = _CAPACITIES
        sound = least <= self.capacity <= most
        return HostLimits(capacity=self.capacity if sound else 1.0, max_ranges=self.max_ranges)


def limits_by_load(
    fleet: Collection[HostName], said: Mapping[HostName, str]
) -> Mapping[HostName, HostLimits] | None:
    """Return what each host of the fleet can take, or ``None`` where one balances by count;
    ``said`` are the settings of their records.

    Then all have to: a host that counts would undo what others move. So would hosts of another
    kind, which keep no record.
    """
    return _limits_where_all(fleet, said, lambda x: x.balance == "load")


def limits_to_split(
    fleet: Collection[HostName], said: Mapping[HostName, str]
) -> Mapping[HostName, HostLimits]:
    """Return what each host can take where all of them split hot ranges, else nothing.

    So none is split in front of a processor of another kind, which does not know parts.
    """
    return _limits_where_all(fleet, said, lambda x: x.split_hot) or {}


def _limits_where_all(
    fleet: Collection[HostName], said: Mapping[HostName, str], agree: Callable[[_Balance], bool]
) -> Mapping[HostName, HostLimits] | None:
    found = {x: _balance_of(said.get(x, "")) for x in fleet}
    if not all(map(agree, found.values())):
        return None
    return {x: y.limits for x, y in found.items()}


@lru_cache(maxsize=1024)
def _balance_of(text: str) -> _Balance:
    try:
        return msgspec.json.decode(text or "{}", type=_Balance)
    except msgspec.DecodeError:
        return _Balance()


def _digest(settings: ObserverSettings) -> str:
    options = msgspec.json.encode(settings.options, order="sorted", enc_hook=str)
    return hashlib.sha256(options).hexdigest()[:_DIGITS]
