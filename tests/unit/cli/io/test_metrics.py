"""The lags of a fleet as text for Prometheus, when no host is there to give them."""

from prometheus_client.parser import text_string_to_metric_families

from changefeed.cli.io.metrics import as_metrics
from tests.support import make


def test_each_range_that_has_not_ended_has_its_lag_and_its_state() -> None:
    seen = make.fleet_seen(
        [
            make.range_seen("r0", lag=7, lag_seconds=61.5),
            make.range_seen("r1", "anna", lag=3),
            make.range_seen("r2", "anna", state="paused", lag=2, lag_seconds=1.0),
            make.range_seen("r3", state="ended"),
            make.range_seen("r4"),
            make.range_seen("r5", state="waiting", lag=0),
            make.range_seen("r6", "net", lag=0),
        ],
        hosts=[make.host_seen("anna"), make.host_seen("net", state="foreign")],
    )
    text = as_metrics({"": seen}, lag_per_host=5)
    found = {
        (x.name, *x.labels.values()): x.value
        for family in text_string_to_metric_families(text)
        for x in family.samples
    }
    assert found == {
        ("changefeed_lag", "r0", "unowned"): 7,
        ("changefeed_lag", "r1", "owned"): 3,
        ("changefeed_lag", "r2", "paused"): 2,
        ("changefeed_lag", "r5", "waiting"): 0,
        ("changefeed_lag", "r6", "foreign"): 0,
        ("changefeed_lag_time_seconds", "r0", "unowned"): 61.5,
        ("changefeed_lag_time_seconds", "r2", "paused"): 1,
        ("changefeed_range_paused",): 1,
        ("changefeed_desired_hosts",): 2,
    }
