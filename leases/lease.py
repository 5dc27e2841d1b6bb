"""The values of ownership: a lease, a member, and the names they are made of."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Final, Literal, NewType

import msgspec
from msgspec.structs import replace

from changefeed.feeds.feed import Child, Feed, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Hole
from changefeed.leases.deaths import NO_DEATHS, Deaths
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth
from changefeed.runtime.unique_names import unique_name

HostName = NewType("HostName", str)
Incarnation = NewType("Incarnation", str)
"""One start of a host: a name lives on through restarts, an incarnation does not."""
Version = NewType("Version", str)
WriteId = NewType("WriteId", str)

LOAD_STEP: Final = 0.05
"""Loads are stored as multiples of it."""
MAX_LOAD: Final = 16.0
"""One task reads a range and one observes it: no range can keep its owner busier."""


class RangeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended range goes on in, and who has ended it.

    ``high`` and ``holes`` say what the range had done behind the position at which its children
    start (``leases.checkpoint``). Each child has all of them: a hole of a key that is another
    child's hides nothing.
    """

    children: tuple[Child, ...]
    by: Literal["feed", "split", "merge"] = "feed"
    high: int | None = None
    holes: tuple[Hole, ...] = ()

    @classmethod
    def of_split(cls, feed: Feed, found: FeedRange, into: int, at: Checkpoint) -> "RangeEnd":
        """Cut a range into sub-ranges that go on where it is. Raise ``FeedRefused`` where it
        cannot be cut.
        """
        cut = feed.split(found, into)
        assert len(cut) == into, f"range {found.id!r} was cut into {len(cut)}, not {into}"
        assert (cut[0].low, cut[-1].high) == (found.low, found.high), (
            f"{cut} are not all keys of {found}"
        )
        assert all(x.high == y.low for x, y in pairwise(cut)), f"{cut} leave keys of {found}"
        children = tuple(Child(range=x, start=at.position) for x in cut)
        return cls(children=children, by="split").with_done(at)

    def with_done(self, at: Checkpoint) -> "RangeEnd":
        """Let the children begin with what was done behind the position where they start."""
        return replace(self, high=at.high, holes=at.holes)

    def checkpoint_of(self, child: Child) -> Checkpoint:
        """Return what is done of a child as it begins."""
        return Checkpoint(child.start, self.high, self.holes)


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person asks of the owner of a range: to try the change that a key waits for now,
    or to put it aside. ``id`` is new for each request; the owner writes the ``answer``, which
    is empty until then.
    """

    id: str
    key: str
    aside: bool
    answer: Literal["", "taken", "not waiting", "no dead letters"] = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads one range, and (if carried) how far they have got.

    ``checkpoint`` is set on every stored lease. ``None`` means *not carried*: a listing
    leaves it out, and a write without it leaves the stored one alone.
    ``end`` says what the range goes on in, once it has been read to its end: such a lease is
    the tombstone of its range. It is written with the last position, so there are no children
    of an end that did not happen; who may read which keys is ``leases.keymap``'s to say.
    ``epoch`` counts the changes of owner and never goes down. ``renewals`` is the sign of
    life: only the owner's own writes move it. ``next_owner`` is a host that asks for the
    lease. ``paused`` says why no host may read the range, until it is resumed.
    ``health`` is what its owner last wrote of its observer; a release leaves it standing.
    ``key_request`` is what a person has last asked of its owner.
    ``deaths`` says how its last owners ended (``leases.deaths``); only its owner writes it.
    ``load`` is what the range costs its owner (``leases.load_plan``), as last written, ``None``
    before it was measured. ``cooling`` says that another host had it a short while ago: it does
    not move to balance until its owner has written otherwise. ``reset_epoch`` is the epoch in
    which a person last moved the position, 0 if nobody has. ``stamp`` is wall-clock time, for
    people and for other processors. The container writes a new, opaque ``version`` on each
    write. ``write_id`` names the last write, for a writer whose answer was lost.
    """

    range: FeedRange
    owner: HostName | None = None
    incarnation: Incarnation | None = None
    epoch: int = 0
    renewals: int = 0
    next_owner: HostName | None = None
    key_request: KeyRequest | None = None
    end: RangeEnd | None = None
    paused: str | None = None
    health: RangeHealth = NOTHING_KNOWN
    deaths: Deaths = NO_DEATHS
    load: float | None = None
    cooling: bool = False
    stamp: float | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_epoch: int = 0
    reset_epoch: int = 0
    write_id: WriteId | None = None
    version: Version = Version("")

    @property
    def range_id(self) -> RangeId:
        return self.range.id

    @property
    def ended(self) -> bool:
        """Whether the range has been read to its end."""
        return self.end is not None

    @property
    def sign_of_life(self) -> tuple[int, int]:
        """What moves only when an owner writes: a request of another host does not."""
        return (self.epoch, self.renewals)

    def taken_by(
        self, host: HostName, incarnation: Incarnation, deaths: Deaths | None = None
    ) -> "Lease":
        """Change the owner, which begins a new epoch and answers any request. ``deaths`` are
        those of its owners where one more has died; what one that lives has noted is over.
        """
        assert not self.ended, f"{host!r} takes lease {self.range_id!r}, which has ended"
        assert self.paused is None, f"{host!r} takes lease {self.range_id!r}, which is paused"
        return replace(
            self,
            owner=host,
            incarnation=incarnation,
            epoch=self.epoch + 1,
            renewals=self.renewals + 1,
            next_owner=None,
            health=self.health.returned(),
            deaths=replace(deaths or self.deaths, noted=None),
            cooling=self.cooling or self.owner not in (None, host),
        )

    def deaths_after(
        self, incarnation: Incarnation, *, read: int, ended: Mapping[str, str]
    ) -> Deaths:
        """Return the deaths with that of its owner, if this was one of ours, has not released
        it, and is not this very process. It may have read so many changes behind the
        checkpoint. ``ended`` says how incarnations ended, as far as that is known.
        """
        if self.incarnation in (None, incarnation):
            return self.deaths
        return self.deaths.died(read=read, cause=ended.get(self.incarnation, ""))

    @property
    def known_load(self) -> float | None:
        """Its load within the bounds of one, ``None`` for what is no load at all."""
        load = self.load
        return min(load, MAX_LOAD) if load is not None and 0.0 <= load < inf else None

    def renewed(self) -> "Lease":
        return replace(self, renewals=self.renewals + 1)

    @property
    def position(self) -> Position | None:
        """The position of its checkpoint, if it carries one."""
        return None if self.checkpoint is None else self.checkpoint.position

    def with_checkpoint(self, checkpoint: Checkpoint) -> "Lease":
        """Carry a checkpoint of the present owner."""
        return replace(self, checkpoint=checkpoint, checkpoint_epoch=self.epoch)

    def advanced_to(self, position: Position) -> "Lease":
        """Carry a checkpoint of the present owner: all below that position is done."""
        return self.with_checkpoint(Checkpoint(position))

    def reset_to(self, checkpoint: Checkpoint) -> "Lease":
        """Begin there in this epoch, which belongs to no host: a person has said so."""
        return replace(self.with_checkpoint(checkpoint), reset_epoch=self.epoch)

    def without_position(self) -> "Lease":
        """Carry none: a write of this leaves the stored checkpoint alone."""
        return self if self.checkpoint is None else replace(self, checkpoint=None)

    def requested_by(self, host: HostName | None) -> "Lease":
        """Carry a request to hand the lease over; ``None`` withdraws it."""
        assert host is None or not self.ended, (
            f"{host!r} asks for lease {self.range_id!r}, which has ended"
        )
        assert host is None or host != self.owner, (
            f"{host!r} asks itself for lease {self.range_id!r}"
        )
        return replace(self, next_owner=host)

    def handed_over(self) -> "Lease":
        """Pass the lease on to the host that asked. That one begins its own epoch."""
        assert self.next_owner is not None, "a lease is handed over to a host"
        return replace(
            self,
            owner=self.next_owner,
            incarnation=None,
            epoch=self.epoch + 1,
            renewals=self.renewals + 1,
            next_owner=None,
            deaths=self.deaths.released(),
            cooling=True,
        )

    def paused_because(self, reason: str | None) -> "Lease":
        """Let no host read the range any more; ``None`` resumes it: a person has looked, so
        nothing is held against its changes.
        """
        deaths = NO_DEATHS if reason is None else self.deaths
        return replace(self, paused=reason, deaths=deaths)

    def with_health(self, health: RangeHealth) -> "Lease":
        """Say how the observer of its owner gets on."""
        return replace(self, health=health)

    def with_load(self, load: float | None, *, cooling: bool) -> "Lease":
        """Say what the range costs its owner, and whether it came a short while ago."""
        return replace(self, load=load, cooling=cooling)

    def released(self) -> "Lease":
        return replace(
            self,
            owner=None,
            incarnation=None,
            next_owner=None,
            renewals=self.renewals + 1,
            deaths=self.deaths.released(),
        )

    def evicted(self) -> "Lease":
        """Take it from its owner: an epoch begins that belongs to no host."""
        return replace(self.released(), epoch=self.epoch + 1, deaths=NO_DEATHS)

    def ended_in(self, end: RangeEnd) -> "Lease":
        """The range has been read to its end: no host owns it, and others have its keys.

        There is nothing left to pause: what begins in its place is not paused.
        """
        assert self.end is None, f"lease {self.range_id!r} has ended already"
        return replace(self.released(), end=end, paused=None, deaths=NO_DEATHS, cooling=False)

    def reopened(self) -> "Lease":
        """The range goes on after all: none of what it was to go on in has come."""
        assert self.end is not None, f"lease {self.range_id!r} has not ended"
        return replace(self, end=None, renewals=self.renewals + 1)

    def revived_as(self, found: FeedRange, start: Checkpoint) -> "Lease":
        """A range comes back under the name of one that has ended. Epochs only grow."""
        assert self.end is not None, f"lease {self.range_id!r} is read, and comes back"
        fresh = self.reopened()
        return replace(fresh, range=found, checkpoint=start, reset_epoch=0)

    def restarted_at(self, start: Checkpoint) -> "Lease":
        """Begin there: for a lease that no host has owned yet."""
        assert self.epoch == 0, (
            f"lease {self.range_id!r} has been owned, in epoch {self.epoch}: it has begun"
        )
        return replace(self, checkpoint=start)

    def stamped(self, *, stamp: float, write_id: WriteId | None = None) -> "Lease":
        """Prepare a write: a name for it, a fresh one if none is given, and the wall-clock
        time.
        """
        name = WriteId(unique_name()) if write_id is None else write_id
        assert name not in ("", self.write_id), (
            f"two writes of lease {self.range_id!r} have the name {name!r}"
        )
        return replace(self, write_id=name, stamp=stamp)


class KeptCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is kept apart from its lease, and the epoch that has written it."""

    range_id: RangeId
    checkpoint: Checkpoint
    epoch: int = 0
    write_id: WriteId | None = None
    version: Version = Version("")

    @property
    def position(self) -> Position:
        return self.checkpoint.position


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A host as the others see it; ``heartbeats`` is its sign of life.

    A member that is ``stopping`` gets no more leases, and no member more than ``max_ranges``,
    where hosts share their work. The rest is for people: ``address`` is where its web
    endpoints listen, ``software`` the version of the program.
    """

    name: HostName
    incarnation: Incarnation
    heartbeats: int = 0
    stopping: bool = False
    stamp: float | None = None
    address: str = ""
    software: str = ""
    max_ranges: int | None = None
    version: Version = Version("")

    @property
    def sign_of_life(self) -> tuple[Incarnation, int]:
        return (self.incarnation, self.heartbeats)


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is written once for all hosts of a fleet.

    ``id`` names the fleet, empty before its first host has joined. ``feed`` is the identity of
    its feed, ``root`` what its leases begin in; both are ``None`` before they are settled.
    ``checkpoints`` is the id of the fleet whose checkpoints these are, empty if nobody's.
    ``expiration`` and ``balance`` are the settings of those names that all hosts go by, 0 and
    empty before a host has said them; ``before`` is the expiration that some may still go by,
    0 if none does (``changefeed.leases.fleet``).
    """

    id: str = ""
    feed: str | None = None
    root: RangeEnd | None = None
    checkpoints: str = ""
    expiration: float = 0.0
    balance: str = ""
    before: float = 0.0
    version: Version = Version("")

    def of_feed(self, feed: str) -> "FleetRecord":
        """The leases are about this feed, and the checkpoints are theirs."""
        name = self.id or self.checkpoints or unique_name()
        root = self.root if self.feed in (None, feed) else None
        return replace(self, id=name, checkpoints=name, feed=feed, root=root)


def require_position(lease: Lease) -> Position:
    """Return the position of a lease that must have one."""
    return require_checkpoint(lease).position


def require_checkpoint(lease: Lease) -> Checkpoint:
    """Return the checkpoint of a lease that must have one."""
    if lease.checkpoint is None:
        raise ValueError(
            f"the lease of {lease.range_id!r} carries no checkpoint; a new one starts from"
            " where the feed settled, a later one is made by advanced_to()"
        )
    return lease.checkpoint


def newest(leases: Iterable[Lease]) -> Mapping[RangeId, Lease]:
    """Return each lease once: as it was written last, of copies in any order.

    Pauses and requests are no sign of life: where only these differ, the paused copy counts.
    """
    found: dict[RangeId, Lease] = {}
    for x in leases:
        known = found.get(x.range_id)
        if known is None or _order(known) < _order(x):
            found[x.range_id] = x
    return found


def _order(lease: Lease) -> tuple[int, int, bool, str]:
    return (*lease.sign_of_life, lease.paused is not None, lease.version)
