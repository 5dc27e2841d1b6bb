"""Which leases a heartbeat keeps alive, as seen from here. No I/O but for ``fence_owner``.

A host proves with one write, its heartbeat, that it lives; so the leases that this very
incarnation owns need no writes of their own. A lease has died when neither it nor the heartbeat
of its owner's incarnation has moved for the whole expiration. What keeps that safe:

* A heartbeat counts for the incarnation that the lease names. Another start of the same host
  says nothing about what the one before it held.
* A record that a listing lacks has not moved: the wait goes on from what was seen last. So
  does its stamp: only a record that was seen can make its leases old.
* Before a lease is taken, the record of its owner is written under the version that stood
  still (``fence_owner``). A heartbeat that is on its way fails on that; if one got through
  meanwhile, this write fails, and the lease is not taken. So a listing from a replica that
  lags behind takes nothing from the living, as with renewals.

A host says in its record whether its heartbeats keep its leases. Processors of another kind,
which have no records, are judged by their leases alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import Members
from changefeed.leases.lease import HostName, Incarnation, Lease, Member

Renewal = Literal["host", "lease"]
"""What keeps the leases of a host alive: its heartbeat, or a renewal of each."""

RENEWAL: Final = "leases.renewal"
"""Under which name the settings in a member record say it."""

_NEVER: Final = -1
"""The heartbeats of a record that no host wrote."""

_Incarnation = tuple[HostName, Incarnation]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLife:
    """What moves while the owner of a lease lives, and when it last did, by its stamps.

    ``stamp`` is what the lease may be judged by: ``None`` while no record of its owner is
    known. ``newest_stamp`` is the newest of what is known, for people.
    """

    sign_of_life: tuple[int, int, int | None]
    stamp: float | None
    newest_stamp: float | None


@lru_cache(maxsize=1024)
def _are_kept_by_heartbeats(settings: str) -> bool:
    try:
        found = msgspec.json.decode(settings or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        return False
    return found.get(RENEWAL) == "host"


def is_placeholder(member: Member) -> bool:
    """Whether no host wrote the record: it only keeps late heartbeats out."""
    return member.heartbeats <= _NEVER


def keeps_leases(member: Member) -> bool:
    """Whether its heartbeats keep the leases of its incarnation alive."""
    return not is_placeholder(member) and _are_kept_by_heartbeats(member.settings)


class Heartbeats:
    """Remembers the last heartbeat that was seen of each incarnation."""

    def __init__(self) -> None:
        self._seen: dict[_Incarnation, Member] = {}

    def lives(
        self, leases: Iterable[Lease], members: Collection[Member]
    ) -> Mapping[RangeId, LeaseLife]:
        """Take in a listing; return the signs of life of each lease that is owned."""
        owned = [x for x in leases if x.owner is not None]
        seen = self._seen | {
            (x.name, x.incarnation): x for x in members if not is_placeholder(x)
        }
        named = {(x.owner, x.incarnation) for x in owned}
        self._seen = {key: x for key, x in seen.items() if key in named}
        assert len(self._seen) <= len(owned), "only incarnations that own leases are remembered"
        return {x.range_id: self._life_of(x) for x in owned}

    def _life_of(self, lease: Lease) -> LeaseLife:
        owner, beats = None, None
        if lease.owner is not None and lease.incarnation is not None:
            owner = self._seen.get((lease.owner, lease.incarnation))
        stamps = [lease.stamp]
        if owner is None:
            # It may live, and only its record be missing; and a processor of another kind,
            # which has none, does not renew at our intervals.
            stamps.append(None)
        elif keeps_leases(owner):
            beats = owner.heartbeats
            assert beats > _NEVER, f"{owner.name!r} has a placeholder, which keeps no lease"
            stamps.append(owner.stamp)
        known = [x for x in stamps if x is not None]
        newest = max(known, default=None)
        return LeaseLife(
            sign_of_life=(*lease.sign_of_life, beats),
            stamp=newest if len(known) == len(stamps) else None,
            newest_stamp=newest,
        )


async def fence_owner(container: Members, lease: Lease, members: Iterable[Member]) -> None:
    """Let no heartbeat count any more that the owner of an expired lease has sent by now.

    ``members`` were listed when the lease had expired. Raise ``MemberConflict`` if the record
    of the owner has changed since: it may live. Where the listing has no record of it, one is
    created that stands in the way.
    """
    if lease.owner is None or lease.incarnation is None:
        return  # no heartbeat keeps it
    record = next((x for x in members if x.name == lease.owner), None)
    if record is None:
        record = Member(
            name=lease.owner,
            incarnation=lease.incarnation,
            heartbeats=_NEVER,
            stopping=True,
        )
        assert is_placeholder(record), f"hosts would take it for a heartbeat: {record}"
    elif record.incarnation == lease.incarnation and not (
        keeps_leases(record) or is_placeholder(record)
    ):
        return  # its leases are judged by themselves, and so are its writes
    await container.put_member(record)
