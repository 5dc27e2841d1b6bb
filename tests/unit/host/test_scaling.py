"""How many hosts a fleet should have."""

from collections.abc import Sequence

import pytest

from changefeed.host.scaling import desired_hosts
from changefeed.host.snapshot import Snapshot
from tests.support import make


def fleet(
    *lags: int | None,
    paused: Sequence[int] = (),
    ended: Sequence[int] = (),
    without_lease: Sequence[str] = (),
) -> Snapshot:
    leases = [
        make.lease_status(
            f"r{n}", ended=n in ended, paused="bad data" if n in paused else None, lag=lag
        )
        for n, lag in enumerate(lags)
    ]
    return make.snapshot(leases, ranges_without_lease=without_lease)


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
        (fleet(without_lease=["r0"]), 1),
        (fleet(), 0),
    ],
)
def test_lag_is_shared_by_hosts_and_a_host_needs_a_range(seen: Snapshot, desired: int) -> None:
    assert desired_hosts(seen, lag_per_host=100) == desired
