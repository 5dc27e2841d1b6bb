"""What keeps the leases of the hosts of a world: heartbeats, renewals, or now this, now that.

In the middle of an upgrade there are hosts of the version before as well, which know nothing
of heartbeats: they do not say in their records what keeps their leases, judge others by leases
alone, and take what looks expired to them without a word to its owner.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal, cast

from changefeed.feeds.feed import RangeId
from changefeed.host.host import Host
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease, Member
from changefeed.leases.life import Heartbeats, LeaseLife

Kind = Literal["host", "lease", "older"]

_WORLDS: Sequence[tuple[Kind, ...]] = (
    ("host",),
    ("host",),
    ("host",),
    ("lease",),
    ("host", "lease"),
    ("host", "host", "older"),
)


class Renewals:
    """Chosen by the seed, and for each start of a host; ``all_by`` says the same for all."""

    def __init__(self, seed: int, all_by: Kind | None = None) -> None:
        self._random = Random(f"renewals {seed}")
        chosen = self._random.choice(_WORLDS)
        self._kinds = chosen if all_by is None else (all_by,)

    @property
    def by_heartbeats(self) -> bool:
        """Whether at rest no host writes a lease."""
        return self._kinds == ("host",)

    def choose(self) -> Kind:
        return self._random.choice(self._kinds)

    @staticmethod
    def settings_of(kind: Kind) -> Mapping[str, object]:
        return {"renewal": "host" if kind == "host" else "lease"}


def make_older(host: Host) -> None:
    """Have a host do as the version before heartbeats kept leases."""
    host._membership._member = replace(host._membership._member, settings="")
    host._balancer._heartbeats = cast("Heartbeats", _LeasesAlone())


class _LeasesAlone:
    def lives(
        self, leases: Iterable[Lease], members: Collection[Member]
    ) -> Mapping[RangeId, LeaseLife]:
        del members
        return {
            x.range_id: LeaseLife(
                sign_of_life=(*x.sign_of_life, None), stamp=x.stamp, newest_stamp=x.stamp
            )
            for x in leases
            if x.owner is not None
        }


class OwnRecordOnly:
    """A container as a host of that version uses it: it writes no record but its own."""

    def __init__(self, container: LeaseContainer, name: str) -> None:
        self._container = container
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    async def put_member(self, member: Member) -> Member:
        if member.name != self._name:
            return member
        return await self._container.put_member(member)
