"""What a status says of all ranges together."""

from collections.abc import Sequence

import pytest

from changefeed.fleet.status import FleetStatus, RangeStatus, desired_hosts
from tests.support import make


def fleet(
    *lags: int | None,
    paused: Sequence[int] = (),
    ended: Sequence[int] = (),
    more: Sequence[RangeStatus] = (),
) -> FleetStatus:
    states = {**dict.fromkeys(paused, "paused"), **dict.fromkeys(ended, "ended")}
    ranges = [
        make.range_seen(f"r{n}", lag=lag, state=states.get(n, "unowned"))
        for n, lag in enumerate(lags)
    ]
    return make.fleet_seen([*ranges, *more])


NO_LEASE = make.range_seen("x", leased=False)
WAITING = make.range_seen("x", leased=False, state="waiting")


@pytest.mark.parametrize(
    ("seen", "desired"),
    [
        (fleet(0, 0, 0), 0),
        (fleet(1, 0, 0), 1),
        (fleet(50, 50, 0), 1),
        (fleet(50, 51, 0), 2),
        (fleet(1_000_000, 0, 0), 3),
        (fleet(0, 500, paused=[1]), 0),
        (fleet(500, 500, 500, paused=[1]), 2),
        (fleet(0, None, ended=[1]), 0),
        (fleet(0, None), 1),
        (fleet(more=[NO_LEASE]), 1),
        (fleet(0, more=[WAITING]), 0),
        (fleet(), 0),
    ],
)
def test_lag_is_shared_by_hosts_and_a_host_needs_a_range(
    seen: FleetStatus, desired: int
) -> None:
    assert desired_hosts([seen], lag_per_host=100) == desired


def test_hosts_of_several_fleets_share_all_lag_and_are_no_more_than_one_fleet_has_ranges() -> (
    None
):
    assert desired_hosts([fleet(120), fleet(30, 40)], lag_per_host=100) == 2
    assert desired_hosts([fleet(900), fleet(0, 900)], lag_per_host=100) == 2
    assert desired_hosts([fleet(0), fleet(None)], lag_per_host=100) == 1


@pytest.mark.parametrize(
    ("seen", "lag", "at_least"),
    [
        (fleet(3, 4), 7, 7),
        (fleet(3, None), None, 3),
        (fleet(3, more=[NO_LEASE]), None, 3),
        (fleet(None), None, None),
        (fleet(), None, None),
        (fleet(3, None, ended=[1]), 3, 3),
    ],
)
def test_an_unknown_lag_stays_unknown(
    seen: FleetStatus, lag: int | None, at_least: int | None
) -> None:
    assert (seen.total.lag, seen.total.lag_at_least) == (lag, at_least)
