"""The view of a fleet from outside: its lease container, its feed, its members' endpoints.

Each look reads every lease, and measures every lag: as ``changefeed status`` does. How
fast a range gets on is what its owner answers; where that does not answer, it is what lies
between the positions of two looks.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.activity import Point
from changefeed.host.moves import Holding, LeaseMove, moves_between
from changefeed.host.page.host_source import foreign_rows, host_row, place_of
from changefeed.host.page.letter_count import LetterCount
from changefeed.host.page.lineage import Lineage, unleased
from changefeed.host.page.peers import Peers
from changefeed.host.page.view import (
    NOTHING,
    HostRow,
    Known,
    Ownership,
    PastRange,
    RangeRow,
    Trouble,
    View,
    by_owner,
    range_row,
    totals,
)
from changefeed.host.rates import rates
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector, LeaseStatus, MemberStatus, Snapshot
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Incarnation, Member
from changefeed.stores.addresses import without_secrets

_MOVES = 100
_KEPT_MOVES = 200
_HOUR = 3600.0
_POINT_EVERY = 10.0


class FleetSource:
    """Makes views of what an inspector sees, and remembers the last hour of them."""

    def __init__(
        self,
        settings: Settings,
        fleet: FleetInspector,
        peers: Peers,
        *,
        acts: bool = False,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._peers = peers
        self._acts = acts
        self._lineage = Lineage()
        self._letters = LetterCount(settings)
        self._before: Snapshot | None = None
        self._held: Mapping[str, Holding] | None = None
        self._moves: deque[LeaseMove] = deque(maxlen=_KEPT_MOVES)
        self._moved = 0
        self._hour: deque[Point] = deque(maxlen=int(_HOUR / _POINT_EVERY))

    async def look(self) -> View:
        """Raise ``StoreError`` if the container does not answer."""
        seen = await self._fleet.look()
        await self._peers.ask(
            [(x.name, x.address) for x in seen.members], self._settings.web.pipelines
        )
        at = seen.at.timestamp()
        rows = await self._range_rows(seen)
        past, more = await self._past(seen)
        rows = sorted([*rows, *more], key=lambda x: x.name)
        self._note_moves(seen, at)
        self._note_point(rows, at)
        self._before = seen
        leases = self._settings.leases
        return View(
            at=at,
            me="",
            feed=without_secrets(seen.feed),
            leases=place_of(leases.container, leases.ownership),
            expiration=seen.expiration,
            hosts=self._host_rows(seen, rows),
            ranges=rows,
            acts=self._acts,
            past=past,
            pipelines=self._peers.tables,
            troubles=[
                Trouble(kind=x.kind, message=x.message)
                for x in seen.problems
                if x.range is None
            ],
            moves=list(reversed(self._moves))[:_MOVES],
            moved=self._moved,
            hour=list(self._hour),
            letters=await self._letters.look(),
        )

    async def _range_rows(self, seen: Snapshot) -> list[RangeRow]:
        owners = {x.range: x.owner for x in seen.leases}
        reported = {
            name: known
            for report in map(self._peers.host, (x.name for x in seen.members))
            if report is not None
            for name, known in report.known.items()
            if owners.get(name) == report.host
        }
        speeds = await self._rates(seen, reported)
        return [
            range_row(
                _ownership(x),
                _known(x, reported.get(x.range, NOTHING), speeds.get(x.range)),
            )
            for x in seen.leases
        ]

    async def _rates(self, seen: Snapshot, told: Collection[str]) -> Mapping[str, float]:
        if self._before is None or self._fleet.feed is None:
            return {}
        asked = [x for x in seen.leases if x.range not in told]
        return await rates(self._fleet.feed, self._before, replace(seen, leases=asked))

    async def _past(self, seen: Snapshot) -> tuple[list[PastRange], list[RangeRow]]:
        if self._fleet.feed is None:
            return [], []
        ranges = await self._lineage.ranges(self._fleet.feed)
        return unleased(
            ranges,
            [FeedRange(id=RangeId(x.range), low=x.low, high=x.high) for x in seen.leases],
        )

    def _host_rows(self, seen: Snapshot, rows: Sequence[RangeRow]) -> list[HostRow]:
        owned = by_owner(rows)
        members = [_member(x, seen) for x in seen.members]
        found = [
            host_row(
                member,
                owned.get(member.name, []),
                self._peers.host(member.name),
                state=x.state,
            )
            for member, x in zip(members, seen.members, strict=True)
        ]
        return [*found, *foreign_rows(members, owned)]

    def _note_moves(self, seen: Snapshot, at: float) -> None:
        held = {x.range: Holding(x.owner, x.next_owner, x.paused, x.ended) for x in seen.leases}
        if self._held is not None:
            news = moves_between(self._held, held, at=at)
            self._moves.extend(news)
            self._moved += len(news)
        self._held = held

    def _note_point(self, rows: Sequence[RangeRow], at: float) -> None:
        if self._hour and at - self._hour[-1].at < _POINT_EVERY:
            return
        rate, lag, late = totals(rows)
        self._hour.append(Point(at=at, rate=rate or 0.0, lag=lag or 0, late=late))


def _member(seen: MemberStatus, at: Snapshot) -> Member:
    now = at.at.timestamp()
    return Member(
        name=HostName(seen.name),
        incarnation=Incarnation(seen.incarnation),
        heartbeats=seen.heartbeats,
        stopping=seen.stopping,
        stamp=None if seen.stamp_age is None else round(now - seen.stamp_age, 1),
        address=seen.address,
        software=seen.software,
    )


def _ownership(lease: LeaseStatus) -> Ownership:
    def stamp(name: str) -> float | None:
        at = getattr(lease, name)
        return None if at is None else float(at.timestamp())

    return Ownership(
        name=lease.range,
        parents=lease.parents,
        low=lease.low,
        high=lease.high,
        owner=lease.owner,
        next_owner=lease.next_owner,
        epoch=lease.epoch,
        ended=lease.ended,
        paused=lease.paused,
        health=RangeHealth(
            last_progress=stamp("last_progress"),
            failing_since=stamp("failing_since"),
            stuck_since=stamp("stuck_since"),
            last_error=lease.last_error,
        ),
        load=lease.load,
        waits=lease.state == "waiting",
        expired=lease.state == "expired",
    )


def _known(lease: LeaseStatus, reported: Known, rate: float | None) -> Known:
    """Take from the store what is there, and from the owner what only that knows."""
    return Known(
        since=reported.since,
        position=lease.continuation,
        lag=lease.lag,
        late=lease.lag_seconds,
        rate=rate if reported.rate is None else reported.rate,
        checkpoint_at=reported.checkpoint_at,
    )
