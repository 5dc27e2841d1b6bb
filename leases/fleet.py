"""One snapshot of a fleet, as one observer judges it: its leases, its hosts, and which live.

Every host, and every command that has to know whether a lease is in use, takes what it listed
to its ``FleetWatch``. What comes back has each lease once (``newest``), and all that can be
said of life and death; nobody else says it.

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

Processors of another kind keep no records, and are judged by their leases alone. Where such
may come, hosts renew each lease as well; that counts, too.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import ListedFleet
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, newest
from changefeed.leases.timing import Timing
from changefeed.runtime.clock import Clock
from changefeed.stores.store import WHOLE

K = TypeVar("K", bound=Hashable)


class HasSignOfLife(Protocol):
    """What can die: a lease with its owner, a member."""

    @property
    def sign_of_life(self) -> Hashable: ...

    @property
    def stamp(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAt:
    """When a listing was asked for and answered (on our clock), and the wall-clock time."""

    asked: float
    answered: float
    wall: float

    def __post_init__(self) -> None:
        assert self.asked <= self.answered, f"answered before it was asked: {self}"


class _Seen(NamedTuple):
    """A sign of life, since when it stands still as seen from here, and for how long it may
    have done so before that, by its stamp.
    """

    sign: Hashable
    since: float
    before: float


class ExpiryWatch(Generic[K]):
    """Expiry without clocks: remembers the signs of life of one kind of thing, and says which
    has shown none for too long, as seen from here. Times are in seconds.

    Clocks of different machines disagree, so the only clock asked is our own, one that counts
    suspended time too (``changefeed.runtime.clock``). A lease (or a member) is expired once
    *we* have seen the same sign of life for the whole expiration. A listing shows the state at
    some moment between question and answer, so the span counted runs from the *answer* that
    first showed the sign to the *question* that showed it last: a listing that was long under
    way can never make a living owner look dead.

    What the mechanism costs: a watcher that has just started must wait a whole expiration for
    owners that died long ago. Wall-clock stamps shorten that, and only that: by its stamp, less
    any error of clocks, a thing may have stood still before it was first seen.
    ``shortest_watch`` is for how long *we* must have seen it unchanged all the same. So a wrong
    clock, ours or the writer's, takes nothing from an owner that is alive.

    A person who looks once cannot wait. A watch for people asks for no time of its own; nothing
    is taken by what it says.

    ``shortest_watch`` is longer than a living owner takes from one sign of life to the next;
    without it no stamp counts.
    """

    def __init__(
        self, expiration: float, *, max_clock_skew: float = 0.0, shortest_watch: float = inf
    ) -> None:
        self._max_clock_skew = max_clock_skew
        self.judge_by(expiration, shortest_watch=shortest_watch)
        self._seen: dict[K, _Seen] = {}

    def judge_by(self, expiration: float, *, shortest_watch: float) -> None:
        """Change the expiration. What has stood still has done so all the while."""
        self.expiration = expiration
        self._longest_before = max(0.0, expiration - shortest_watch)
        assert 0 <= self._longest_before <= expiration, f"{expiration=}, {shortest_watch=}"

    def still_since(self, listed: Mapping[K, HasSignOfLife], at: ListedAt) -> dict[K, float]:
        """Take in a listing; return since when, on our clock, each thing has stood still.

        What had done so for the whole expiration when the listing was asked for is dead.
        """
        seen: dict[K, _Seen] = {}
        for key, thing in listed.items():
            known = self._seen.get(key)
            if known is None:
                stamp = at.wall if thing.stamp is None else thing.stamp
                before = max(0.0, at.wall - stamp - self._max_clock_skew)
                known = _Seen(thing.sign_of_life, at.answered, before)
            elif known.sign != thing.sign_of_life:
                known = _Seen(thing.sign_of_life, at.answered, 0.0)
            assert known.since <= at.answered, f"{key!r}: {known} is after {at}"
            seen[key] = known
        self._seen = seen
        longest = self._longest_before
        return {key: x.since - min(x.before, longest) for key, x in seen.items()}


NEVER: Final = -1
"""The heartbeats of a record that no host wrote."""

_Incarnation = tuple[HostName | None, Incarnation | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLife:
    """What moves while the owner of a lease lives, and when it last did, by its stamps.

    ``stamp`` is what the lease may be judged by: ``None`` while no record of its owner is
    known.
    """

    sign_of_life: tuple[int, int, int | None]
    stamp: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """``leases`` has each lease once, ``members`` all records, also of hosts that are gone.

    ``expired`` are the leases whose owner has died, ``dead`` the hosts whose record no longer
    moves. ``alive`` are the hosts that may own leases: those that live and do not stop, with or
    without a record. ``foreign`` are owners of another kind (``foreign_owners``); ``shared``
    says whether one was ever seen, which may come back. ``still_since`` is when, on the clock
    of ``at``, each record last moved, ``next_expiry`` when something would die if nothing
    moved, and ``expiration`` after how long it does.
    """

    leases: Mapping[RangeId, Lease]
    members: Mapping[HostName, Member]
    lives: Mapping[RangeId, LeaseLife]
    expired: frozenset[RangeId]
    dead: frozenset[HostName]
    alive: frozenset[HostName]
    foreign: frozenset[HostName]
    shared: bool
    still_since: Mapping[HostName, float]
    at: ListedAt
    next_expiry: float | None
    expiration: float

    @property
    def forgotten(self) -> Collection[Member]:
        """The records of hosts that are dead and own nothing any more.

        While a dead host's leases have not expired, its record says that it is dead.
        """
        owners = {x.owner for x in self.leases.values()}
        return [x for x in self.members.values() if x.name in self.dead - owners]

    @property
    def reporter(self) -> HostName | None:
        """The host that reports the lags of ranges that no host reads, if any keeps a record:
        the living one with the lowest name, if it does not stop.

        Every host finds it from its own listing: while two listings differ, a lag may be
        reported twice, or not at all, for some seconds.
        """
        return min(self.members.keys() & self.alive, default=None)

    def unassigned(self, readable: Iterable[Lease]) -> Mapping[RangeId, str]:
        """Return the ranges that no living member reads, and why; ``readable`` are the leases
        that a host may own.

        ``paused``; ``waiting``, as others have its keys; ``foreign``: a processor of another
        kind has it; ``unowned``.
        """
        living = self.members.keys() - self.dead
        foreign = self.foreign & self.alive
        may_begin = {x.range_id for x in readable}
        found: dict[RangeId, str] = {}
        for lease in self.leases.values():
            if lease.ended or lease.owner in living:
                continue
            if lease.paused is not None:
                found[lease.range_id] = "paused"
            elif lease.owner is not None:
                found[lease.range_id] = "foreign" if lease.owner in foreign else "unowned"
            else:
                found[lease.range_id] = "unowned" if lease.range_id in may_begin else "waiting"
        return found


NOTHING_LISTED: Final = Fleet(
    leases={},
    members={},
    lives={},
    expired=frozenset(),
    dead=frozenset(),
    alive=frozenset(),
    foreign=frozenset(),
    shared=False,
    still_since={},
    at=ListedAt(asked=0.0, answered=0.0, wall=0.0),
    next_expiry=None,
    expiration=0.0,
)
"""What a host knows that has not listed yet."""


class FleetWatch:
    """Remembers what has stood still, from one listing to the next. Times are in seconds.

    ``me`` is the host that watches, if it is one: it knows that it lives. A watch ``by_stamps``
    tells people who is dead at its first look (``ExpiryWatch``). Our hosts beat
    often, so that their stamps are taken as they are.
    """

    def __init__(
        self, timing: Timing, *, me: HostName | None = None, by_stamps: bool = False
    ) -> None:
        self._me = me
        self._by_stamps = by_stamps
        expiration, skew = timing.expiration, timing.clock_skew
        self._leases = ExpiryWatch[RangeId](expiration, max_clock_skew=skew)
        self._members = ExpiryWatch[HostName](
            expiration, max_clock_skew=0.0 if by_stamps else skew
        )
        self.judge_by(timing)
        self._beats: dict[_Incarnation, Member] = {}
        self._ours = set[HostName | None]()  # hosts of our kind, as a record or a lease said
        self._shared = False

    def judge_by(self, timing: Timing) -> None:
        """Take for dead what has stood still for so long, from now on."""
        self.expiration = timing.expiration
        shortest = 0.0 if self._by_stamps else 2 * timing.renew_interval
        for watch in (self._leases, self._members):
            watch.judge_by(timing.expiration, shortest_watch=shortest)

    def take(self, leases: Iterable[Lease], members: Collection[Member], at: ListedAt) -> Fleet:
        """Take in all leases and records as they were listed ``at`` a moment."""
        listed = newest(leases)
        owned = [x for x in listed.values() if x.owner is not None]
        self._beats = _beats_of(owned, members, before=self._beats)
        lives = {x.range_id: self._life_of(x) for x in owned}
        records = {x.name: x for x in members}
        since = self._leases.still_since(lives, at)
        record_since = self._members.still_since(records, at)
        latest = at.asked - self.expiration  # what has not moved since then is dead
        expired = frozenset(x for x, y in since.items() if y <= latest)
        dead = frozenset(x for x, y in record_since.items() if y <= latest)
        living = [x for x in (*since.values(), *record_since.values()) if x > latest]
        foreign = foreign_owners(owned) - records.keys()
        # What looks dead may yet live, and a record may be missing in a torn listing.
        self._shared = self._shared or not foreign <= self._ours
        self._ours |= records.keys() | {x.owner for x in owned} - foreign
        return Fleet(
            leases=listed,
            members=records,
            lives=lives,
            expired=expired,
            dead=dead,
            alive=self._alive(owned, records, expired, dead),
            foreign=foreign,
            shared=self._shared,
            still_since=record_since,
            at=at,
            next_expiry=min(living) + self.expiration if living else None,
            expiration=self.expiration,
        )

    def _life_of(self, lease: Lease) -> LeaseLife:
        # Without a record it may live, and only its record be missing; and a processor of
        # another kind, which has none, does not renew at our intervals.
        owner = self._beats.get((lease.owner, lease.incarnation))
        beat = None if owner is None else owner.heartbeats
        stamps = [lease.stamp] if owner is not None or self._by_stamps else []
        stamps += [] if owner is None else [owner.stamp]
        stamp = max((x for x in stamps if x is not None), default=None)
        return LeaseLife(sign_of_life=(*lease.sign_of_life, beat), stamp=stamp)

    def _alive(
        self,
        owned: Iterable[Lease],
        records: Mapping[HostName, Member],
        expired: Collection[RangeId],
        dead: Collection[HostName],
    ) -> frozenset[HostName]:
        living = records.keys() - dead
        # A host of another kind keeps no record; a lease that moves shows that it lives.
        owners = {x.owner for x in owned if x.owner and x.range_id not in expired}
        mine = set() if self._me is None else {self._me}
        stopping = {x.name for x in records.values() if x.stopping}
        alive = frozenset((living | (owners - records.keys()) | mine) - stopping)
        assert alive.isdisjoint({*dead} - mine), f"{alive} and {dead} have hosts in common"
        return alive


def foreign_owners(leases: Collection[Lease]) -> frozenset[HostName]:
    """Return the owners that are processors of another kind: they have no lease that names
    their incarnation, or was handed over to them (``cooling``).
    """
    ours = {x.owner for x in leases if x.incarnation is not None or x.cooling}
    return frozenset(x.owner for x in leases if x.owner is not None) - ours


def is_placeholder(member: Member) -> bool:
    """Whether no host wrote the record: it only keeps late heartbeats out."""
    return member.heartbeats <= NEVER


def _beats_of(
    owned: Collection[Lease], members: Iterable[Member], *, before: dict[_Incarnation, Member]
) -> dict[_Incarnation, Member]:
    """Return the last heartbeat that was seen of each incarnation that owns a lease."""
    seen = before | {(x.name, x.incarnation): x for x in members if not is_placeholder(x)}
    named = {(x.owner, x.incarnation) for x in owned}
    found = {key: x for key, x in seen.items() if key in named}
    assert len(found) <= len(owned), "only incarnations that own leases are remembered"
    return found


_WHOLE_EVERY = 60.0

ListFleet: TypeAlias = Callable[[str], Awaitable[ListedFleet]]
"""Lists what was written since a token was given, as a container does."""


class LeaseListing:
    """What one host knows of all leases and members, brought up to date by each listing.

    Every host lists every lease every few seconds, and at rest hardly one of them has changed.
    A container that can say what was written since (a version that grows, a transaction's
    number) answers with that alone, and with how many leases and members there are: one that
    was deleted is noticed by the count, and then all are listed again. So they are where a copy
    is older than what is known (a replica lags behind, or the store has lost its last writes),
    at the start, and every minute: a server that was restored from a backup may have gone back
    behind what was said; a heartbeat that is refused says so at once. A container that cannot
    count without reading all leaves deleted ones in for that long, or until a write finds one
    gone.

    What is missed or late costs a write that is refused, and a new plan: every write names the
    version that it is meant for.
    """

    def __init__(self, ask: ListFleet, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._leases = dict[RangeId, Lease]()
        self._members = dict[HostName, Member]()
        self._token = WHOLE
        self._whole_due = clock()

    def doubt(self) -> None:
        """List all the next time: a lease or a member that is known turned out to be gone."""
        self._token = WHOLE

    async def list_fleet(self) -> tuple[Sequence[Lease], Sequence[Member]]:
        """Return every lease, without positions, and every member. Raise as the container."""
        token = self._next_token()
        if not self._takes_in(await self._ask(token), whole=not token):
            self.doubt()  # something was deleted, or has moved back; and the next call may fail
            self._takes_in(await self._ask(WHOLE), whole=True)
        if any(x.stopping for x in self._members.values()):
            self.doubt()  # it removes its record soon, which no change shows
        return list(self._leases.values()), list(self._members.values())

    def _next_token(self) -> str:
        assert self._whole_due <= self._clock() + _WHOLE_EVERY, (
            f"the next whole listing is due at {self._whole_due}, more than a minute from now"
        )
        return WHOLE if self._clock() >= self._whole_due else self._token

    def _takes_in(self, found: ListedFleet, *, whole: bool) -> bool:
        """Bring up to date what is known; return whether that is all there is."""
        if whole:
            self._leases, self._members = {}, {}
            self._whole_due = self._clock() + _WHOLE_EVERY
        listed = newest(found.leases)
        earlier = [x for x in listed.values() if self._knows_later_than(x)]
        self._leases.update(listed)
        self._members.update((x.name, x) for x in found.members)
        self._token = found.token
        known = len(self._leases) + len(self._members)
        return whole or (not earlier and found.total in (None, known))

    def _knows_later_than(self, lease: Lease) -> bool:
        known = self._leases.get(lease.range_id)
        return known is not None and known.sign_of_life > lease.sign_of_life
