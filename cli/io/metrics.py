"""The status of a fleet as text for Prometheus, under the names that hosts give the same."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from changefeed.fleet.status import FleetStatus, RangeSeen


def as_metrics(seen: FleetStatus, *, lag_per_host: int) -> str:
    """Return the lags of all ranges that have not ended, how many are paused, and how many
    hosts there should be.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fleet(seen, lag_per_host))
    return generate_latest(registry).decode()


class _Fleet(Collector):
    def __init__(self, seen: FleetStatus, lag_per_host: int) -> None:
        self._seen = seen
        self._lag_per_host = lag_per_host
        self._foreign = {x.name for x in seen.hosts if x.state == "foreign"}

    def collect(self) -> Iterator[Metric]:
        ranges = [x for x in self._seen.ranges if x.state != "ended"]
        yield self._by_range(
            "changefeed_lag",
            "Changes in the range that the observer has not had",
            ((x, x.lag) for x in ranges),
        )
        yield self._by_range(
            "changefeed_lag_time_seconds",
            "Age of the first change that the observer has not had",
            ((x, x.lag_seconds) for x in ranges),
        )
        yield GaugeMetricFamily(
            "changefeed_range_paused",
            "Ranges that no host reads until they are resumed, as last listed",
            value=sum(x.state == "paused" for x in ranges),
        )
        yield GaugeMetricFamily(
            "changefeed_desired_hosts",
            "Hosts that the fleet should have, by its lag",
            value=self._seen.hosts_for(self._lag_per_host),
        )

    def _by_range(
        self, name: str, about: str, values: Iterable[tuple[RangeSeen, float | None]]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, about, labels=("range", "state"))
        for seen, value in values:
            if value is not None:
                family.add_metric((seen.range, self._label(seen)), value)
        return family

    def _label(self, seen: RangeSeen) -> str:
        """As hosts say it of their ranges, and of those that none of them reads."""
        if seen.state in ("paused", "waiting"):
            return seen.state
        if seen.owner is None:
            return "unowned"
        return "foreign" if seen.owner in self._foreign else "owned"
