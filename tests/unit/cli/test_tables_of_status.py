"""Which ranges status shows, in which order, and what it says of them all."""

from io import StringIO

import pytest
from rich.console import Console

from changefeed.cli.commands.status import Sort
from changefeed.cli.status_tables import View, as_tables
from changefeed.fleet.status import FleetStatus, Problem, RangeStatus
from tests.support import make


def seen_of(name: str, owner: str | None, lag: int | None, late: float | None) -> RangeStatus:
    rates = {"r0": 1.5, "r1": 0.0}
    return make.range_seen(name, owner, lag=lag, lag_seconds=late, rate=rates.get(name))


RANGES = [
    seen_of("r0", "ben", 5, 9.0),
    seen_of("r1", "anna", 70, 2.0),
    seen_of("r2", None, None, None),
    make.range_seen("r3", lag=5, lag_seconds=3.0, rate=20.0, state="paused", note="bad data"),
    make.range_seen("r4", "ben", state="stuck", note="it hangs", since=0.0),
]


def shown(view: View) -> list[str]:
    return [x.range for x in view.of(RANGES)]


def printed(seen: FleetStatus, view: View | None = None) -> str:
    out = StringIO()
    Console(file=out, width=200).print(as_tables(seen, view or View()))
    return out.getvalue()


@pytest.mark.parametrize(
    ("sort", "ranges"),
    [
        (Sort.RANGE, ["r0", "r1", "r2", "r3", "r4"]),
        (Sort.OWNER, ["r1", "r0", "r4", "r2", "r3"]),
        (Sort.LAG, ["r1", "r0", "r3", "r2", "r4"]),
        (Sort.LAG_TIME, ["r0", "r3", "r1", "r2", "r4"]),
        (Sort.RATE, ["r3", "r0", "r1", "r2", "r4"]),
    ],
)
def test_the_largest_figures_come_first_and_what_is_not_known_last(
    sort: Sort, ranges: list[str]
) -> None:
    assert shown(View(sort=sort)) == ranges


@pytest.mark.parametrize(
    ("pattern", "ranges"),
    [
        ("*", ["r0", "r1", "r2", "r3", "r4"]),
        ("r[12]", ["r1", "r2"]),
        ("an*", ["r1"]),
        ("paused", ["r3"]),
        ("unowned", ["r2"]),
        ("stuck", ["r4"]),
        ("R0", []),
    ],
)
def test_a_pattern_is_for_ranges_owners_and_states(pattern: str, ranges: list[str]) -> None:
    assert shown(View(pattern=pattern)) == ranges


def test_what_is_left_out_is_said_and_rates_have_a_column_where_they_are_known() -> None:
    text = printed(make.fleet_seen(RANGES), View(pattern="r[01]"))
    assert "2 of 5 ranges are shown" in text
    assert "changes/s" in text
    tables, _, notes = text.partition("Stamps are by")
    assert "r3" not in tables
    assert "paused: r3: bad data" in notes, "what needs attention is said of all"
    assert "changes/s" not in printed(make.fleet_seen(RANGES[2:3]))


def test_a_feed_that_nobody_reads_is_not_called_read() -> None:
    bare = [make.range_seen(f"r{n}", leased=False) for n in range(2)]
    text = printed(make.fleet_seen(bare), View(pattern="unowned"))
    assert "0 leases, 2 ranges without a lease, behind by an unknown number" in text
    assert [text.count(x) for x in ("r0", "r1")] == [2, 2], "and what needs attention"


def test_ranges_with_the_same_trouble_are_one_line() -> None:
    free = [make.range_seen(f"r{n}", note="no host has its lease") for n in range(3)]
    refused = Problem(kind="refused", message="another feed")
    text = printed(make.fleet_seen([*free, RANGES[4]], problems=[refused]))
    notes = [x.strip() for x in text.partition("for so long.")[2].strip().splitlines()]
    assert notes == [
        "refused: another feed",
        "stuck: r4 on ben since 1970-01-01 00:00:00: it hangs",
        "unowned: r0, r1, r2: no host has its lease",
    ]


ENDED = make.range_seen("r5", state="ended")


@pytest.mark.parametrize(
    ("ranges", "behind"),
    [
        ([], "behind by an unknown number"),
        ([*RANGES[:2], ENDED], "75 changes behind"),
        (RANGES, "at least 80 changes behind"),
        ([RANGES[2], ENDED], "behind by an unknown number"),
    ],
)
def test_a_lag_that_is_not_known_is_not_called_none(
    ranges: list[RangeStatus], behind: str
) -> None:
    assert f", {behind} in " in printed(make.fleet_seen(ranges))
