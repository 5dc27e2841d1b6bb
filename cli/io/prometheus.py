"""A snapshot of a fleet as text for Prometheus, under the names that hosts give the same."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from changefeed.host.scaling import desired_hosts
from changefeed.host.snapshot import LeaseStatus, Snapshot


def as_prometheus(seen: Snapshot, *, lag_per_host: int) -> str:
    """Return the lags of all ranges that have not ended, how many are paused, and how many
    hosts there should be.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fleet(seen, lag_per_host))
    return generate_latest(registry).decode()


class _Fleet(Collector):
    def __init__(self, seen: Snapshot, lag_per_host: int) -> None:
        self._seen = seen
        self._lag_per_host = lag_per_host

    def collect(self) -> Iterator[Metric]:
        leases = [x for x in self._seen.leases if not x.ended]
        yield _by_range(
            "changefeed_lag",
            "Changes in the range that the observer has not had",
            ((x, x.lag) for x in leases),
        )
        yield _by_range(
            "changefeed_lag_time_seconds",
            "Age of the first change that the observer has not had",
            ((x, x.lag_seconds) for x in leases),
        )
        yield GaugeMetricFamily(
            "changefeed_ranges_paused",
            "Ranges that no host reads until they are resumed, as last listed",
            value=sum(x.paused is not None for x in leases),
        )
        yield GaugeMetricFamily(
            "changefeed_hosts_desired",
            "Hosts that the fleet should have, by its lag",
            value=desired_hosts(self._seen, lag_per_host=self._lag_per_host),
        )


def _by_range(
    name: str, about: str, values: Iterable[tuple[LeaseStatus, float | None]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=("range", "state"))
    for lease, value in values:
        if value is not None:
            family.add_metric((lease.range, _state(lease)), value)
    return family


def _state(lease: LeaseStatus) -> str:
    """As hosts say it; but that an owner is dead cannot be seen in one look."""
    if lease.paused is not None:
        return "paused"
    return "unowned" if lease.owner is None else "owned"
