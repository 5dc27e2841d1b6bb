"""The lags of a fleet as text for Prometheus, when no host is there to give them."""

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from changefeed.cli.io.prometheus import as_prometheus
from changefeed.host.snapshot import LeaseStatus, Snapshot


def status(
    name: str,
    *,
    owner: str | None = None,
    paused: str | None = None,
    ended: bool = False,
    lag: int | None = 0,
    seconds: float | None = 0.0,
) -> LeaseStatus:
    return LeaseStatus(
        range=name,
        parents=(),
        owner=owner,
        incarnation=None,
        next_owner=None,
        epoch=1,
        ended=ended,
        paused=paused,
        continuation="0",
        checkpoint_epoch=1,
        lag=lag,
        lag_seconds=seconds,
        stamp_age=None,
    )


def test_each_range_that_has_not_ended_has_its_lag_and_its_state() -> None:
    seen = Snapshot(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        feed="memory:",
        expiration=30.0,
        members=(),
        leases=[
            status("r0", lag=7, seconds=61.5),
            status("r1", owner="anna", lag=3, seconds=None),
            status("r2", owner="anna", paused='bad "data"', lag=2, seconds=1.0),
            status("r3", ended=True, lag=None, seconds=None),
            status("r4", lag=None, seconds=None),
        ],
        ranges_without_lease=(),
    )
    text = as_prometheus(seen, lag_per_host=5)
    found = {
        (x.name, *x.labels.values()): x.value
        for family in text_string_to_metric_families(text)
        for x in family.samples
    }
    assert found == {
        ("changefeed_lag", "r0", "unowned"): 7,
        ("changefeed_lag", "r1", "owned"): 3,
        ("changefeed_lag", "r2", "paused"): 2,
        ("changefeed_lag_time_seconds", "r0", "unowned"): 61.5,
        ("changefeed_lag_time_seconds", "r2", "paused"): 1,
        ("changefeed_ranges_paused",): 1,
        ("changefeed_hosts_desired",): 2,
    }
