"""The view of a fleet that a host has anyway: of its last listing, and of its own ranges.

Nothing is read from the lease container for it. What only other hosts know of their ranges
(lags, rates, positions) is asked from their endpoints while the page is watched.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.events import Lag
from changefeed.host.host import Host
from changefeed.host.page.letter_count import LetterCount
from changefeed.host.page.lineage import Lineage, unleased
from changefeed.host.page.peers import HostReport, Peers
from changefeed.host.page.view import (
    NOTHING,
    HostRow,
    Known,
    Ownership,
    PastRange,
    RangeRow,
    View,
    by_owner,
    load_of,
    range_row,
    totals,
)
from changefeed.host.states import HostState, host_state
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, Member
from changefeed.leases.load import known
from changefeed.runtime.version import software_version
from changefeed.stores.addresses import without_secrets

_MOVES = 100
_NO_LAG = Lag(None, None)  # type: ignore[arg-type]


def known_of(host: Host) -> Mapping[str, Known]:
    """Return what a host knows of the ranges it owns, and of those that no host reads."""
    rates, lags = host.activity.rates, host.lags
    found: dict[str, Known] = {
        name: Known(lag=lag.changes, late=lag.seconds) for name, lag in host.unread_lags.items()
    }
    for name, mine in host.activity.ranges.items():
        lag = lags.get(name, _NO_LAG)
        found[name] = Known(
            since=mine.since,
            position=mine.position,
            lag=lag.changes,
            late=lag.seconds,
            rate=rates.get(name, 0.0),
            checkpoint_at=mine.checkpoint_at,
        )
    return found


def ownership_of(
    lease: Lease, *, waiting: Collection[str] = (), dead: Collection[str] = ()
) -> Ownership:
    return Ownership(
        name=lease.range_id,
        parents=lease.range.parents,
        low=lease.range.low,
        high=lease.range.high,
        owner=lease.owner,
        next_owner=lease.next_owner,
        epoch=lease.epoch,
        ended=lease.ended,
        paused=lease.paused,
        health=lease.health,
        load=known(lease.load),
        waits=lease.range_id in waiting,
        expired=lease.owner in dead,
    )


def _range_of(row: RangeRow) -> FeedRange:
    return FeedRange(id=RangeId(row.name), low=row.low, high=row.high)


def waiting_ranges(leases: Sequence[Lease]) -> set[str]:
    """Return those that no host may begin yet."""
    open_to_hosts = {x.range_id for x in KeyMap(leases).readable()}
    return {x.range_id for x in leases if not x.ended and x.range_id not in open_to_hosts}


class HostSource:
    """Makes views of what one host knows."""

    def __init__(
        self,
        host: Host,
        peers: Peers | None,
        *,
        acts: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._peers = peers
        self._acts = acts
        self._wall = wall
        self._lineage = Lineage()
        self._letters = LetterCount(host.settings)

    async def look(self) -> View:
        host, seen = self._host, self._host.activity
        others = [(x.name, x.address) for x in seen.members if x.name != host.name]
        if self._peers is not None:
            await self._peers.ask(others, host.settings.web.pipelines)
        rows = self._range_rows()
        past: Sequence[PastRange] = ()
        if seen.leases:
            ranges = await self._lineage.ranges(host.feed)
            past, more = unleased(ranges, [_range_of(x) for x in rows])
            rows += more
        rows.sort(key=lambda x: x.name)
        settings = host.settings
        return View(
            at=self._wall(),
            me=host.name,
            feed=without_secrets(settings.feed.address),
            leases=place_of(settings.leases.container, settings.leases.ownership),
            expiration=settings.leases.expiration,
            hosts=self._host_rows(rows),
            ranges=rows,
            acts=self._acts,
            past=past,
            pipelines=[] if self._peers is None else self._peers.tables,
            moves=seen.newest_moves(_MOVES),
            moved=seen.moved,
            hour=list(seen.hour),
            letters=await self._letters.look(),
        )

    def _report(self, name: str) -> HostReport | None:
        return None if self._peers is None else self._peers.host(name)

    def _range_rows(self) -> list[RangeRow]:
        host, seen = self._host, self._host.activity
        waiting, dead = waiting_ranges(seen.leases), set(seen.dead)
        mine = known_of(host)
        owned = {**host.leases}
        reported = {
            x.name: report.known
            for x in seen.members
            if x.name != host.name and (report := self._report(x.name)) is not None
        }
        rows = []
        for listed in seen.leases:
            name = listed.range_id
            lease = owned.get(name, listed)
            if lease.owner == host.name or lease.owner is None:
                known = mine.get(name, NOTHING)
            else:
                known = reported.get(lease.owner, {}).get(name, NOTHING)
            if name in owned:
                lease = lease.with_health(host.range_health.get(name, lease.health))
            rows.append(range_row(ownership_of(lease, waiting=waiting, dead=dead), known))
        return rows

    def _host_rows(self, rows: Sequence[RangeRow]) -> list[HostRow]:
        seen = self._host.activity
        owned = by_owner(rows)
        found = [
            host_row(
                member,
                owned.get(member.name, []),
                self._own_report()
                if member.name == self._host.name
                else self._report(member.name),
                state=host_state(silent=member.name in seen.dead, stopping=member.stopping),
            )
            for member in seen.members
        ]
        return [*sorted(found, key=lambda x: x.name), *foreign_rows(seen.members, owned)]

    def _own_report(self) -> HostReport:
        seen = self._host.activity
        return HostReport(
            host=self._host.name,
            started_at=seen.started_at,
            version=software_version(),
            loop_lag=seen.loop_lag,
        )


def host_row(
    member: Member, owned: Sequence[RangeRow], report: HostReport | None, *, state: HostState
) -> HostRow:
    told = report or HostReport(host=member.name)
    rate, lag, late = totals(owned)
    return HostRow(
        name=member.name,
        state=state,
        ranges=len(owned),
        address=member.address,
        incarnation=member.incarnation,
        stamp=member.stamp,
        since=told.started_at,
        version=told.version or member.software or None,
        loop_lag=told.loop_lag,
        rate=rate,
        lag=lag,
        late=late,
        load=load_of(owned),
    )


def foreign_rows(
    members: Sequence[Member], owned: Mapping[str, Sequence[RangeRow]]
) -> list[HostRow]:
    """Return the owners that keep no record: processors of another kind, or hosts long gone."""
    names = sorted(owned.keys() - {x.name for x in members})
    found = []
    for name in names:
        rate, lag, late = totals(owned[name])
        ranges = len(owned[name])
        found.append(
            HostRow(name=name, state="foreign", ranges=ranges, rate=rate, lag=lag, late=late)
        )
    return found


def place_of(container: str, ownership: str | None) -> str:
    return without_secrets(container if ownership is None else ownership)
