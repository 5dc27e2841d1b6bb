"""What a host knows of its fleet anyway: its last listing, and its own ranges.

Nothing is read from the lease container or the feed for it. What only other hosts know of
their ranges (lags, rates, positions) is asked from their endpoints, where ``peers`` are given.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from changefeed import __version__
from changefeed.fleet.peers import Peers
from changefeed.fleet.states import FleetListing, fleet_status
from changefeed.fleet.status import FleetStatus, Metrics, RangeStatus, Report
from changefeed.host.host import Host
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from changefeed.stores.addresses import without_secrets

_NOTHING = Metrics()


def of_host(host: Host, *, own: bool = False) -> FleetListing:
    """Return what a host has listed; with ``own``, only the ranges that it reads, and those
    that are paused.
    """
    leases, activity = host.settings.leases, host.events.activity
    listed = [x for x in activity.fleet.leases.values() if not own or x.paused is not None]
    keymap = KeyMap([*listed, *host.leases.values()], ranges=() if own else host.ranges)
    return FleetListing(
        feed=without_secrets(host.settings.feed.address),
        place=without_secrets(leases.address),
        fleet=activity.fleet,
        leases=[_as_written(host, x) for x in keymap.leases.values()],
        keymap=keymap,
        metrics=_metrics(host),
        me=host.name,
        balance=host.rules.balance,
    )


def _as_written(host: Host, listed: Lease) -> Lease:
    """Return the lease as this host wrote it last, if it is its own."""
    mine = host.leases.get(listed.range_id, listed)
    known = host.events.activity.ranges.get(mine.range_id)
    return mine if known is None else mine.with_health(known.health)


def _metrics(host: Host) -> Mapping[str, Metrics]:
    """Return what it knows of the ranges it owns, and of those that no host reads."""
    found: dict[str, Metrics] = {
        name: Metrics(lag=lag.changes, lag_seconds=lag.seconds)
        for name, lag in host.events.lags.items()
    }
    for name, mine in host.events.activity.ranges.items():
        found[name] = replace(
            found.get(name, _NOTHING),
            position=mine.position,
            rate=mine.rate,
            checkpoint_at=mine.checkpoint_at,
            owned_since=mine.since,
        )
    return found


def report_of(host: Host) -> Report:
    """Return what a host says of itself: the document of ``/leases``."""
    seen = fleet_status(of_host(host, own=True), {}, None, now=host.wall())
    return _introduced(host, [x for x in seen.ranges if x.leased])


def _introduced(host: Host, ranges: Sequence[RangeStatus] = ()) -> Report:
    return Report(
        host=host.name,
        incarnation=host.incarnation,
        version=__version__,
        started_at=host.events.activity.started_at,
        loop_lag=host.events.activity.loop_lag,
        ranges=ranges,
    )


async def look(host: Host, peers: Peers | None, before: FleetStatus | None) -> FleetStatus:
    """Return the status of the fleet as a host sees it, with what ``peers`` say."""
    reports: Mapping[str, Report] = {}
    if peers is not None:
        members = host.events.activity.fleet.members.values()
        reports = await peers.ask({x.name: x.address for x in members if x.name != host.name})
    reports = {**reports, host.name: _introduced(host)}
    return fleet_status(of_host(host), reports, before, now=host.wall())
