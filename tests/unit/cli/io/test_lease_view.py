"""Which leases are shown, in which order, and how fast they get on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from changefeed.cli.io.lease_view import LeaseView, Sort
from changefeed.cli.status import rendered
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.rates import rates
from changefeed.host.snapshot import LeaseStatus
from tests.support import make


def lease(name: str, owner: str | None, lag: int | None, late: float | None) -> LeaseStatus:
    return make.lease_status(name, owner=owner, lag=lag, lag_seconds=late)


AT = datetime(2026, 1, 1, tzinfo=UTC)
LEASES = [
    lease("r0", "ben", 5, 9.0),
    lease("r1", "anna", 70, 2.0),
    lease("r2", None, None, None),
    make.lease_status("r3", lag=5, lag_seconds=3.0, paused="bad data"),
    make.lease_status("r4", owner="ben", state="stuck", stuck_since=AT, failing_since=AT),
]
RATES = {"r0": 1.5, "r1": 0.0, "r3": 20.0}


def shown(view: LeaseView) -> list[str]:
    return [x.range for x in view.of(LEASES, RATES)]


@pytest.mark.parametrize(
    ("sort", "ranges"),
    [
        (Sort.RANGE, ["r0", "r1", "r2", "r3", "r4"]),
        (Sort.OWNER, ["r1", "r0", "r4", "r2", "r3"]),
        (Sort.LAG, ["r1", "r0", "r3", "r2", "r4"]),
        (Sort.LATE, ["r0", "r3", "r1", "r2", "r4"]),
        (Sort.RATE, ["r3", "r0", "r1", "r2", "r4"]),
    ],
)
def test_the_largest_figures_come_first_and_what_is_not_known_last(
    sort: Sort, ranges: list[str]
) -> None:
    assert shown(LeaseView(sort=sort)) == ranges


@pytest.mark.parametrize(
    ("pattern", "ranges"),
    [
        ("*", ["r0", "r1", "r2", "r3", "r4"]),
        ("r[12]", ["r1", "r2"]),
        ("an*", ["r1"]),
        ("paused", ["r3"]),
        ("unowned", ["r2"]),
        ("failing", ["r4"]),
        ("stuck", ["r4"]),
        ("R0", []),
    ],
)
def test_a_pattern_is_for_ranges_owners_and_states(pattern: str, ranges: list[str]) -> None:
    assert shown(LeaseView(pattern=pattern)) == ranges


def test_what_is_left_out_is_said_and_rates_have_a_column() -> None:
    out = StringIO()
    seen = make.snapshot(LEASES)
    Console(file=out, width=200).print(rendered(seen, LeaseView(pattern="r[01]"), RATES))
    assert "2 of 5 ranges are shown" in out.getvalue()
    assert "changes/s" in out.getvalue()
    assert "r3" not in out.getvalue()


ENDED = make.lease_status("r5", ended=True)


@pytest.mark.parametrize(
    ("leases", "behind"),
    [
        ([], "behind by an unknown number"),
        ([*LEASES[:2], ENDED], "75 changes behind"),
        (LEASES, "at least 80 changes behind"),
        ([LEASES[2], ENDED], "behind by an unknown number"),
    ],
)
def test_a_lag_that_is_not_known_is_not_called_none(
    leases: list[LeaseStatus], behind: str
) -> None:
    out = StringIO()
    Console(file=out, width=200).print(rendered(make.snapshot(leases)))
    assert f", {behind} in " in out.getvalue()


async def test_a_rate_is_what_was_checkpointed_between_two_looks() -> None:
    feed = MemoryFeed(3)
    for n in range(300):
        feed.append(f"key-{n}")
    before = make.snapshot([lease(f"r{n}", "anna", 0, None) for n in range(3)])
    moved = [replace(before.leases[0], continuation="40"), before.leases[1]]
    after = make.snapshot([*moved, lease("r9", None, 0, None)], seconds=10.0)
    assert await rates(feed, before, after) == {"r0": 4.0, "r1": 0.0}
    back = replace(before, at=after.at + timedelta(seconds=10))
    assert await rates(feed, after, back) == {"r1": 0.0}, "one was moved back"
