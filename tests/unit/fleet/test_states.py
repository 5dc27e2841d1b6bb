"""How things stand in a fleet, decided from what was listed and what hosts say."""

from collections.abc import Collection, Mapping, Sequence

import pytest
from msgspec import structs
from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.states import FleetListing, fleet_status
from changefeed.fleet.status import FleetStatus, Metrics, RangeStatus, Report, desired_hosts
from changefeed.leases.deaths import Deaths
from changefeed.leases.fleet import FleetWatch, ListedAt
from changefeed.leases.health import RangeHealth, WaitingKey
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.timing import Timing
from tests.support import make
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

NOW = 1_800_000_000.0
ALIVE = make.member("anna", heartbeats=7, stamp=NOW)


def status(
    leases: Sequence[Lease] = (),
    *,
    members: Collection[Member] = (ALIVE,),
    metrics: Mapping[str, Metrics] | None = None,
    ranges: Sequence[FeedRange] = (),
    reports: Mapping[str, Report] | None = None,
    before: FleetStatus | None = None,
    later: float = 0,
) -> FleetStatus:
    """Look for the first time at a fleet whose expiration is 30 s, after so many seconds."""
    keymap = KeyMap(leases, ranges=ranges)
    at = ListedAt(asked=later, answered=later, wall=NOW + later)
    listed = FleetListing(
        feed="memory:",
        place="memory:",
        fleet=FleetWatch(Timing.of(30.0), by_stamps=True).take(leases, members, at),
        leases=[*keymap.leases.values()],
        keymap=keymap,
        metrics=metrics or {},
    )
    return fleet_status(listed, reports or {}, before, now=NOW + later)


def owned(of: str = "anna-1", *, stamp: float | None = NOW) -> Lease:
    """Return a lease of an incarnation of the host; the first lives."""
    lease = make.lease("r", at="0").taken_by(HostName("anna"), Incarnation(of))
    return replace(lease, stamp=stamp)


OWNED = owned()
FREE = make.lease("r", epoch=1)
WAITING = WaitingKey(key="k", sequence=17, tries=4, error="ValueError: no", next_try=NOW + 5)
IN_AN_OUTAGE = structs.replace(WAITING, next_try=None)
FAILING = RangeHealth(failing_since=7.0, last_error="ValueError: no")
SUSPECTED = replace(
    OWNED, deaths=Deaths(count=3, care=9, suspect=17, with_suspect=3, cause="SIGSEGV")
)
STUCK = RangeHealth(failing_since=7.0, stuck_since=9.0)


@pytest.mark.parametrize(
    ("lease", "metrics", "state", "note", "since"),
    [
        (OWNED, Metrics(), "reading", None, None),
        (OWNED, Metrics(lag=0, rate=0.0), "idle", None, None),
        (OWNED, Metrics(lag=0, rate=2.0), "reading", None, None),
        (OWNED, Metrics(lag=5), "reading", None, None),
        (OWNED.with_health(FAILING), Metrics(lag=0), "failing", "ValueError: no", 7.0),
        (
            OWNED.with_health(FAILING.waits(2, WAITING)),
            Metrics(),
            "failing",
            "2 keys wait for another try, the longest 'k': change 17 failed 4 times, is tried",
            7.0,
        ),
        (
            OWNED.with_health(FAILING.waits(2, IN_AN_OUTAGE)),
            Metrics(),
            "failing",
            "fails on everything: ValueError: no",
            7.0,
        ),
        (OWNED.with_health(STUCK), Metrics(), "stuck", "does not come back", 9.0),
        (
            SUSPECTED,
            Metrics(),
            "reading",
            "change 17 killed its process 3 times (SIGSEGV)",
            None,
        ),
        (
            OWNED.with_health(FAILING).paused_because("disk"),
            Metrics(),
            "paused",
            "disk",
            None,
        ),
        (make.closed(FREE), Metrics(), "ended", None, None),
        (FREE, Metrics(lag=0), "unowned", "no host has its lease", None),
        (
            FREE.with_health(FAILING),
            Metrics(),
            "unowned",
            "was failing: ValueError: no",
            None,
        ),
        (owned("anna-0", stamp=NOW - 331), Metrics(), "expired", "no sign of", NOW - 331),
        (owned("anna-0", stamp=NOW - 329), Metrics(), "reading", None, None),
        (owned("anna-0", stamp=None), Metrics(), "reading", None, None),
        (owned(stamp=NOW - 331), Metrics(), "reading", None, None),
    ],
)
def test_the_state_of_a_range_is_the_worst_that_a_person_can_mend(
    lease: Lease, metrics: Metrics, state: str, note: str | None, since: float | None
) -> None:
    (seen,) = status([lease], metrics={"r": metrics}).ranges
    assert (seen.state, seen.since) == (state, since)
    assert (note is None) == (seen.note is None)
    assert note is None or note in str(seen.note)


def test_a_lease_of_keys_that_others_read_waits_for_them() -> None:
    whole, half = make.feed_range("r", "", "FF"), make.feed_range("s", "", "7F")
    seen = status([make.lease(whole, "anna"), make.lease(half)]).ranges
    assert [(x.range, x.state) for x in seen] == [("r", "reading"), ("s", "waiting")]


def test_of_keys_that_wait_the_oldest_is_told_and_when_it_is_tried_next() -> None:
    (seen,) = status([OWNED.with_health(FAILING.waits(2, WAITING))]).ranges
    assert (seen.waiting, seen.oldest) == (2, WAITING)
    assert "08:00:05 UTC: ValueError: no" in str(seen.note)


# Hosts


@pytest.mark.parametrize(
    ("member", "state"),
    [
        (ALIVE, "running"),
        (replace(ALIVE, stopping=True), "stopping"),
        (replace(ALIVE, stamp=NOW - 31), "dead"),
        (replace(ALIVE, stamp=NOW + 500), "running"),
        (replace(ALIVE, stamp=None), "running"),
    ],
)
def test_the_first_look_goes_by_stamps(member: Member, state: str) -> None:
    seen = status([OWNED], members=[member])
    assert [x.state for x in seen.hosts] == [state]
    assert seen.ranges[0].state == ("expired" if state == "dead" else "reading")


# What hosts say of themselves


def told(host: str, **known: object) -> Mapping[str, Report]:
    seen = RangeStatus(range="r", state="reading", owner=host, **known)  # type: ignore[arg-type]
    return {host: Report(host=host, version="9", started_at=5.0, ranges=[seen])}


def test_what_only_its_owner_knows_of_a_range_is_as_it_says() -> None:
    seen = status(
        [OWNED],
        metrics={"r": Metrics(position="4", lag=3, rate=1.0)},
        reports=told("anna", position="2", lag=9, rate=2.5, owned_since=8.0, lag_seconds=1.0),
    )
    (r,) = seen.ranges
    assert (r.position, r.lag, r.lag_seconds, r.rate, r.owned_since) == ("4", 3, 1.0, 2.5, 8.0)
    (host,) = seen.hosts
    assert (host.version, host.started_at, host.total.lag) == ("9", 5.0, 3)


def test_a_host_is_not_believed_about_ranges_of_others() -> None:
    assert status([OWNED], reports=told("ben", lag=9)).ranges[0].lag is None


# Ranges without a lease


async def unleased(feed: MemoryFeed, *leased: FeedRange) -> FleetStatus:
    leases = [make.lease(x, "anna") for x in leased]
    return status(leases, ranges=await feed.ranges())


def states(seen: FleetStatus) -> list[tuple[str, str]]:
    return [(x.range, x.state) for x in seen.ranges if not x.leased]


async def test_what_was_split_and_forgotten_is_an_ancestor() -> None:
    feed = MemoryFeed(1)
    feed.split_range(RangeId("r0"))
    seen = await unleased(feed, *(await feed.ranges())[1:])
    assert ([x.range for x in seen.past], states(seen)) == (["r0"], [])


async def test_what_was_merged_waits_for_the_halves_that_are_read() -> None:
    store = ShiftingStore()
    store.split(RangeId("0"))
    store.merge(0)
    halves = (
        FeedRange(id=RangeId("-7F"), high="7F"),
        FeedRange(id=RangeId("7F-"), low="7F", high="FF"),
    )
    ranges = await ShiftingReader(store).ranges()
    seen = status([make.lease(x, "anna") for x in halves], ranges=ranges)
    assert states(seen) == [("3", "waiting")]


async def test_a_range_that_no_host_has_seen_has_no_lease_yet() -> None:
    feed = MemoryFeed(2)
    seen = await unleased(feed, (await feed.ranges())[0])
    assert states(seen) == [("r1", "unowned")]
    assert desired_hosts([seen]) == 1
    ended = make.lease("r0").ended_in(make.end(*feed.split_range(RangeId("r0"))))
    seen = status([ended], ranges=await feed.ranges())
    assert states(seen) == [("r1", "unowned"), ("r2", "unowned"), ("r3", "unowned")]


# One after the other


def test_moves_and_points_of_the_hour_are_of_all_looks() -> None:
    seen = status([FREE])
    assert (seen.moved, len(seen.hour)) == (0, 1), "what was there before did not move"
    for n, lease in enumerate([OWNED, replace(OWNED, owner=HostName("ben"))], start=1):
        seen = status([lease], before=seen, later=6.0 * n)
    assert [(x.kind, x.of, x.to) for x in seen.moves] == [
        ("moved", "anna", "ben"),
        ("acquired", None, "anna"),
    ]
    assert (seen.moved, [x.at - NOW for x in seen.hour]) == (2, [0, 12]), "each ten seconds"
