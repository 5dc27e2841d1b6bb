"""The worlds that seeds are lived through in, one after the other.

Of those of hosts, two of three are over the feed in memory, the third over one whose ranges
come and go as those of Cosmos DB; every second one is wild; half of them keep their leases in
memory, a quarter each in documents of Cosmos DB and in SQLite. In two of 38 hosts of another
kind share the leases, as the .NET change feed processor does, and in twelve people split and
merge ranges that the feed has not. Where the seed says so, hosts split hot ranges by themselves
if the feed reads parts, and the fleet starts at now or at a time. All these come twice: without
troubles, and troubled. In sixteen more events are aimed at what seldom meets. A world of
brokers comes after each ten of all these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from .cluster.world import simulate as simulate_brokers
from .outcome import Outcome
from .running import simulate
from .sources import FeedKind
from .stores import StoreKind
from .world import WorldKind


@dataclass(frozen=True, slots=True)
class BrokersKind:
    """Brokers, their producers and their readers: the seed says all."""

    flags: str = "--brokers"


AnyKind = WorldKind | BrokersKind


def live(seed: int, kind: AnyKind) -> Outcome:
    """Live through one seed."""
    return simulate_brokers(seed) if isinstance(kind, BrokersKind) else simulate(seed, kind)


_FEEDS: Final[Sequence[FeedKind]] = ("memory", "memory", "cosmos")
_LEASES: Final[Sequence[StoreKind]] = ("memory", "memory", "cosmos", "sqlite")
_WORLDS = [
    WorldKind(feed=feed, leases=leases, wild=wild)
    for leases in _LEASES
    for wild in (True, False)
    for feed in _FEEDS
]
_MIXED = [WorldKind(feed="cosmos", leases="cosmos", wild=x, mixed=True) for x in (True, False)]
_SPLIT_WORLDS: Final[Sequence[tuple[FeedKind, bool]]] = (
    ("cosmos", True),
    ("cosmos", False),
    ("memory", False),
    ("memory", True),
)
_SPLITS = [
    WorldKind(feed=feed, leases=leases, wild=wild, splits=True)
    for leases in ("memory", "cosmos", "sqlite")
    for feed, wild in _SPLIT_WORLDS
]
_WITHOUT_TROUBLES = [*_WORLDS, *_MIXED, *_SPLITS]
_AIMED = [
    WorldKind(feed=feed, leases=leases, wild=wild, aimed=True)
    for leases in _LEASES
    for feed, wild in _SPLIT_WORLDS
]
HOSTS = [*_WITHOUT_TROUBLES, *(replace(x, troubled=True) for x in _WITHOUT_TROUBLES), *_AIMED]
_BETWEEN: Final = 10


def _with_brokers(hosts: Sequence[WorldKind]) -> list[AnyKind]:
    found: list[AnyKind] = []
    for n, kind in enumerate(hosts, 1):
        found.append(kind)
        if n % _BETWEEN == 0:
            found.append(BrokersKind())
    return found


MIXTURE: Final[Sequence[AnyKind]] = _with_brokers(HOSTS)
