"""The fleet at one moment, as its lease container and its feed show it; no host is asked.

Ages are by the clocks of the hosts that wrote the stamps, and of this machine. Who is
alive cannot be seen in one look: only a record that does not change for a whole expiration
shows that its host is dead. So the first look goes by stamps, and the next ones by what moved.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backlog import Backlog
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.host.fleet_settings import SharedSettings, read_shared_settings
from changefeed.host.problems import (
    Problem,
    problem_of_feed,
    problem_without_lease,
    problems_of_leases,
    time_of,
)
from changefeed.host.settings import Settings
from changefeed.host.states import HostState, MemberWatch, RangeState, host_state, range_state
from changefeed.host.wiring import open_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.expiry import Moment
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, Member
from changefeed.leases.life import is_placeholder
from changefeed.leases.load import known
from changefeed.leases.operations.look_up import look_up
from changefeed.leases.unread import Unread
from changefeed.runtime.for_each import for_each
from changefeed.runtime.together import together

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A host's member record. ``state`` is as in ``changefeed.host.states``; ``stamp_age`` is
    in seconds. ``software`` is the version of its
    program, and ``settings`` are those that hosts of a fleet should have alike, by their names.
    """

    name: str
    incarnation: str
    address: str
    stopping: bool
    state: HostState
    heartbeats: int
    stamp_age: float | None
    software: str = ""
    settings: SharedSettings = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """A lease and its checkpoint. ``state`` is as in ``changefeed.host.states``. ``lag`` counts
    what a range goes on in without a lease, too, of one that has ended that alone; it is
    ``None`` where the feed could not count. ``lag_seconds`` is the age of the first change that
    is not checkpointed, 0 if there is none, ``None`` where it is not known. ``paused`` is the
    reason, ``None`` where it is not paused. From ``last_progress`` to ``last_error`` it is how
    its observer gets on, as its owner last wrote it: see ``RangeHealth``. ``load`` is what the
    range costs its owner: busy seconds in each second of reading and observing. ``low`` and
    ``high`` bound its keys: see ``FeedRange``.
    """

    range: str
    state: RangeState
    parents: tuple[str, ...]
    owner: str | None
    incarnation: str | None
    next_owner: str | None
    epoch: int
    ended: bool
    paused: str | None
    continuation: str | None
    checkpoint_epoch: int
    lag: int | None
    lag_seconds: float | None
    stamp_age: float | None
    last_progress: datetime | None = None
    failing_since: datetime | None = None
    stuck_since: datetime | None = None
    last_error: str | None = None
    low: str = ""
    high: str = ""
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What ``changefeed status`` shows. ``ranges_without_lease`` are the feed's others."""

    at: datetime
    feed: str
    expiration: float
    members: Sequence[MemberStatus]
    leases: Sequence[LeaseStatus]
    ranges_without_lease: Sequence[str]
    problems: Sequence[Problem] = ()


class FleetInspector:
    """Looks at a fleet, again and again. ``feed`` may be missing, with the reason why."""

    def __init__(
        self,
        settings: Settings,
        container: LeaseContainer,
        feed: Feed | None,
        no_feed: FeedError | None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._container = container
        self._feed = feed
        self._no_feed = no_feed
        self._wall = wall
        self._watch = MemberWatch(settings.leases)

    @classmethod
    @asynccontextmanager
    async def of(cls, settings: Settings) -> "AsyncIterator[FleetInspector]":
        """Open the container, which must be there. If the feed cannot be opened, each
        snapshot says so; raise ``FeedRefused`` for an address that cannot be one.
        """
        opening = open_feed(settings.feed.address, settings.open_options)
        async with AsyncExitStack() as stack:
            container = await stack.enter_async_context(
                open_leases(settings, must_exist=True, only_look=True)
            )
            feed, no_feed = None, None
            try:
                feed = await stack.enter_async_context(opening)
            except FeedError as error:
                no_feed = error
            yield cls(settings, container, feed, no_feed)

    @property
    def feed(self) -> Feed | None:
        return self._feed

    async def look(self) -> Snapshot:
        """Read everything once. Raise ``StoreError`` if the container does not answer."""
        clock = asyncio.get_running_loop().time
        asked = clock()
        listed, leases = await together(self._container.members(), self._container.list())
        members = [x for x in listed if not is_placeholder(x)]
        at = Moment(asked=asked, answered=clock(), wall=self._wall())
        problems = [] if self._no_feed is None else [problem_of_feed(self._no_feed)]
        leased = frozenset(x.range_id for x in leases)
        ranges = await self._ranges(problems)
        keymap = KeyMap(leases, root=await self._container.root(), ranges=ranges)
        due = {x.child.range.id for x in keymap.due()}
        unread = None
        if self._feed is not None:
            unread = Unread(self._feed, leased=leased, ranges=ranges)
        now = at.wall
        longest_still = self._settings.leases.expiration + self._settings.leases.max_clock_skew
        open_to_hosts = {x.range_id for x in keymap.readable()}
        of_leases = problems_of_leases(
            leases, members, readable=open_to_hosts, now=now, longest_still=longest_still
        )
        silent = self._watch.silent(members, at)
        expired = {x.range for x in of_leases if x.kind == "expired"}

        async def seen(lease: Lease) -> LeaseStatus:
            whole = await look_up(self._container, lease.range_id) or lease
            return _lease_seen(
                whole,
                await _backlog(unread, whole, due, problems),
                now,
                waits=whole.range_id not in open_to_hosts,
                expired=whole.range_id in expired or whole.owner in silent,
            )

        in_order = sorted(leases, key=lambda x: x.range_id)
        statuses = await for_each(in_order, seen, at_once=_AT_ONCE)
        unheld = keymap.unheld()
        without_lease = [x.id for x in ranges if _is_without_lease(x, leased, unheld)]
        problems += [problem_without_lease(x) for x in without_lease]
        problems += of_leases
        return Snapshot(
            at=datetime.fromtimestamp(now, UTC),
            feed=self._settings.feed.address,
            expiration=self._settings.leases.expiration,
            members=[
                _member_seen(x, now, silent=x.name in silent)
                for x in sorted(members, key=lambda x: x.name)
            ],
            leases=statuses,
            ranges_without_lease=without_lease,
            problems=list(dict.fromkeys(problems)),
        )

    async def _ranges(self, problems: list[Problem]) -> Sequence[FeedRange]:
        if self._feed is None:
            return []
        try:
            return await self._feed.ranges()
        except FeedError as error:
            problems.append(problem_of_feed(error))
            return []


def _is_without_lease(
    found: FeedRange, leased: frozenset[RangeId], unheld: Sequence[tuple[str, str]]
) -> bool:
    if not leased.isdisjoint((found.id, *found.parents)):
        return False
    return not found.high or any(x < found.high and found.low < y for x, y in unheld)


async def _backlog(
    unread: Unread | None, lease: Lease, due: Collection[RangeId], problems: list[Problem]
) -> Backlog | None:
    """Measure what lies behind a lease; of one that has ended, what its children have that are
    yet to come.
    """
    if unread is None or lease.continuation is None:
        return None
    try:
        if lease.end is not None:
            return await unread.beyond(x for x in lease.end.children if x.range.id in due)
        return await unread.behind(lease.range, lease.continuation)
    except FeedError as error:
        problems.append(problem_of_feed(error))
        return None


def _member_seen(member: Member, now: float, *, silent: bool) -> MemberStatus:
    return MemberStatus(
        name=member.name,
        incarnation=member.incarnation,
        address=member.address,
        stopping=member.stopping,
        state=host_state(silent=silent, stopping=member.stopping),
        heartbeats=member.heartbeats,
        stamp_age=_age(member.stamp, now),
        software=member.software,
        settings=read_shared_settings(member.settings),
    )


def _lease_seen(
    lease: Lease, behind: Backlog | None, now: float, *, waits: bool, expired: bool
) -> LeaseStatus:
    seconds = None if behind is None else behind.seconds(now)
    state, _, _ = range_state(
        ended=lease.ended,
        paused=lease.paused,
        owner=lease.owner,
        health=lease.health,
        waits=waits,
        expired=expired,
        idle=behind is not None and not behind.changes,
    )
    return LeaseStatus(
        range=lease.range_id,
        state=state,
        parents=lease.range.parents,
        owner=lease.owner,
        incarnation=lease.incarnation,
        next_owner=lease.next_owner,
        epoch=lease.epoch,
        ended=lease.ended,
        paused=lease.paused,
        continuation=lease.continuation,
        checkpoint_epoch=lease.checkpoint_epoch,
        lag=None if behind is None else behind.changes,
        lag_seconds=None if seconds is None else round(seconds, 1),
        stamp_age=_age(lease.stamp, now),
        last_progress=time_of(lease.health.last_progress),
        failing_since=time_of(lease.health.failing_since),
        stuck_since=time_of(lease.health.stuck_since),
        last_error=lease.health.last_error,
        low=lease.range.low,
        high=lease.range.high,
        load=known(lease.load),
    )


def _age(stamp: float | None, now: float) -> float | None:
    return None if stamp is None else round(now - stamp, 1)
