"""What the page says of a range and a host, and what it is sent when something changes."""

from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.activity import Point
from changefeed.host.moves import LeaseMove
from changefeed.host.page.lineage import unleased
from changefeed.host.page.view import (
    NOTHING,
    HostRow,
    Known,
    Ownership,
    View,
    difference,
    range_row,
)
from changefeed.leases.health import RangeHealth
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

OWNED = Ownership(name="r", owner="anna", epoch=3)
FAILING = RangeHealth(failing_since=7.0, last_error="ValueError: no")
STUCK = RangeHealth(failing_since=7.0, stuck_since=9.0)


@pytest.mark.parametrize(
    ("lease", "known", "state", "note", "since"),
    [
        (OWNED, NOTHING, "reading", None, None),
        (OWNED, Known(lag=0, rate=0.0), "idle", None, None),
        (OWNED, Known(lag=0, rate=2.0), "reading", None, None),
        (OWNED, Known(lag=5), "reading", None, None),
        (replace(OWNED, health=FAILING), NOTHING, "failing", "ValueError: no", 7.0),
        (replace(OWNED, health=STUCK), NOTHING, "stuck", None, 9.0),
        (replace(OWNED, paused="disk", health=FAILING), NOTHING, "paused", "disk", None),
        (replace(OWNED, ended=True, paused="disk"), NOTHING, "ended", None, None),
        (replace(OWNED, owner=None), NOTHING, "unowned", "no host has its lease", None),
        (
            Ownership(name="r", parents=("p", "q"), waits=True),
            NOTHING,
            "waiting",
            "others have its keys",
            None,
        ),
        (replace(OWNED, expired=True, health=STUCK), NOTHING, "expired", None, None),
    ],
)
def test_the_state_of_a_range_is_the_worst_that_a_person_can_mend(
    lease: Ownership, known: Known, state: str, note: str | None, since: float | None
) -> None:
    row = range_row(lease, known)
    assert (row.state, row.state_since) == (state, since)
    assert note is None or row.note == note


def view(**known: Any) -> View:
    rows = [range_row(replace(OWNED, name=x), Known(lag=1)) for x in ("a", "b")]
    unknown: dict[str, Any] = {
        "at": 1.0,
        "me": "anna",
        "feed": "memory:",
        "leases": "memory:",
        "expiration": 30.0,
        "hosts": [HostRow(name="anna", state="running", ranges=2)],
        "ranges": rows,
    }
    return View(**unknown | known)


def test_of_ranges_only_the_fields_that_differ_are_sent() -> None:
    before = view()
    after = view(at=3.0, ranges=[before.ranges[0], replace(before.ranges[1], lag=5)])
    assert difference(before, after) == {
        "at": 3.0,
        "changed": [{"name": "b", "lag": 5}],
        "gone": [],
        "moves": [],
        "hour": [],
    }


def test_a_range_that_is_new_is_sent_whole_and_one_that_is_gone_by_name() -> None:
    before = view()
    new = range_row(replace(OWNED, name="c"), NOTHING)
    sent = difference(before, view(ranges=[before.ranges[0], new]))
    assert (sent["changed"], sent["gone"]) == ([new], ["b"])


def test_moves_points_and_hosts_are_sent_once() -> None:
    moves = [LeaseMove(at=float(n), range="a", kind="resumed") for n in range(3)]
    point, next_point = Point(at=1.0, rate=2.0, lag=3), Point(at=11.0, rate=2.0, lag=3)
    before = view(moves=moves[1:], moved=2, hour=[point])
    after = view(moves=[moves[0], *moves[1:]], moved=3, hour=[point, next_point], hosts=[])
    sent = difference(before, after)
    assert (sent["moves"], sent["hour"], sent["hosts"]) == ([moves[0]], [next_point], [])
    assert "pipelines" not in sent


# The ranges without a lease


async def ranges_of(feed: MemoryFeed) -> list[FeedRange]:
    return list(await feed.ranges())


async def test_what_was_split_and_forgotten_is_an_ancestor() -> None:
    feed = MemoryFeed(1)
    feed.split_range(RangeId("r0"))
    children = (await ranges_of(feed))[1:]
    past, rows = unleased(await ranges_of(feed), children)
    assert ([x.name for x in past], rows) == (["r0"], [])


async def test_what_a_leased_range_goes_on_in_waits_for_its_end() -> None:
    feed = MemoryFeed(1)
    feed.split_range(RangeId("r0"))
    past, rows = unleased(await ranges_of(feed), [FeedRange(id=RangeId("r0"))])
    assert past == []
    assert {(x.state, x.note) for x in rows} == {("waiting", "for the end of r0")}


async def test_what_was_merged_waits_for_the_halves_that_are_read() -> None:
    store = ShiftingStore()
    store.split(RangeId("0"))
    store.merge(0)
    half = FeedRange(id=RangeId("-7F"), low="", high="7F")
    past, rows = unleased(await ShiftingReader(store).ranges(), [half])
    assert (past, [(x.name, x.state) for x in rows]) == ([], [("3", "waiting")])


async def test_a_range_that_no_host_has_seen_has_no_lease_yet() -> None:
    past, rows = unleased(await ranges_of(MemoryFeed(2)), [FeedRange(id=RangeId("r0"))])
    assert past == []
    assert [(x.name, x.state, x.note) for x in rows] == [
        ("r1", "unowned", "there is no lease of it yet")
    ]
