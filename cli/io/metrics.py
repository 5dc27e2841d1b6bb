"""The status of a fleet as text for Prometheus, under the names that hosts give the same."""

from collections.abc import Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from changefeed.fleet.status import FleetStatus, RangeStatus, desired_hosts
from changefeed.runtime.linked_tasks import label_of

_OF_RANGES = ("range", "state")


def as_metrics(seen: Mapping[str, FleetStatus], *, lag_per_host: int) -> str:
    """Return the lags of all ranges that have not ended, how many are paused, and how many
    hosts there should be: of each fleet by its processor, which is a label if it has a name.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fleets(seen, lag_per_host))
    return generate_latest(registry).decode()


class _Fleets(Collector):
    def __init__(self, seen: Mapping[str, FleetStatus], lag_per_host: int) -> None:
        self._seen = seen
        self._lag_per_host = lag_per_host

    def collect(self) -> Iterator[Metric]:
        lag = self._gauge(
            "changefeed_lag", "Changes in the range that the observer has not had", *_OF_RANGES
        )
        late = self._gauge(
            "changefeed_lag_time_seconds",
            "Age of the first change that the observer has not had",
            *_OF_RANGES,
        )
        paused = self._gauge(
            "changefeed_range_paused",
            "Ranges that no host reads until they are resumed, as last listed",
        )
        desired = self._gauge(
            "changefeed_desired_hosts", "Hosts that the fleet should have, by its lag"
        )
        for processor, seen in self._seen.items():
            of = [*label_of(processor).values()]
            ranges = [x for x in seen.ranges if x.state != "ended"]
            foreign = {x.name for x in seen.hosts if x.state == "foreign"}
            for x in ranges:
                labels = [*of, x.range, _state(x, foreign)]
                if x.lag is not None:
                    lag.add_metric(labels, x.lag)
                if x.lag_seconds is not None:
                    late.add_metric(labels, x.lag_seconds)
            paused.add_metric(of, sum(x.state == "paused" for x in ranges))
            desired.add_metric(of, desired_hosts([seen], self._lag_per_host))
        yield from (lag, late, paused, desired)

    def _gauge(self, name: str, about: str, *labels: str) -> GaugeMetricFamily:
        named = [*label_of(next(iter(self._seen)))]
        return GaugeMetricFamily(name, about, labels=[*named, *labels])


def _state(seen: RangeStatus, foreign: Collection[str]) -> str:
    """As hosts say it of their ranges, and of those that none of them reads."""
    if seen.state in ("paused", "waiting"):
        return seen.state
    if seen.owner is None:
        return "unowned"
    return "foreign" if seen.owner in foreign else "owned"
