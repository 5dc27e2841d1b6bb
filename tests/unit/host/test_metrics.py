"""What a host counts, as Prometheus gets it."""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.host.calls import Overdue
from changefeed.host.events import HostEvents, Lag
from changefeed.host.settings import ObserverSettings
from changefeed.leases.fleet import NOTHING_LISTED
from changefeed.leases.lease import HostName, Incarnation
from changefeed.observers.judge import Waiting
from changefeed.observers.observer import CloseReason
from changefeed.runtime.telemetry import own_metrics
from tests.support import make

R0 = RangeId("r0")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@contextmanager
def counting() -> Iterator[tuple[HostEvents, CollectorRegistry]]:
    with own_metrics("changefeed", "anna") as (meters, registry):
        yield HostEvents(HostName("anna"), meters.get_meter("changefeed")), registry


def samples(registry: CollectorRegistry) -> Samples:
    """Return each line as Prometheus reads it: name and labels, and the value."""
    text = generate_latest(registry).decode()
    return {
        (x.name, tuple(sorted(x.labels.items()))): x.value
        for family in text_string_to_metric_families(text)
        for x in family.samples
    }


def test_counters_of_what_should_not_happen_are_there_before_it_does() -> None:
    with counting() as (_, registry):
        found = samples(registry)
    assert found["changefeed_lease_losses_total", ()] == 0
    assert found["changefeed_lease_steals_total", ()] == 0


def test_a_range_whose_observer_is_stuck_is_failing_until_it_comes_back() -> None:
    def shown(registry: CollectorRegistry) -> float:
        return samples(registry)["changefeed_range_failing", (("range", "r0"),)]

    with counting() as (events, registry):
        events.acquired(make.lease(R0), Position("0"), "available", None)
        events.waited_for(R0, ObserverSettings(), Overdue("call", 300.0))
        assert shown(registry) == 1
        events.waited_for(R0, ObserverSettings(), None)
        assert shown(registry) == 0


async def test_an_outage_is_told_from_keys_that_wait_while_others_go_on() -> None:
    def shown(registry: CollectorRegistry) -> tuple[float, float]:
        found, name = samples(registry), "changefeed_range_waiting"
        failed, outage = (
            found[name, (("range", "r0"), ("reason", x))] for x in ("failed", "outage")
        )
        return failed, outage

    waiting = [Waiting(make.change(n), until=5.0) for n in (1, 2, 3)]
    with counting() as (events, registry):
        events.acquired(make.lease(R0), Position("0"), "available", None)
        events.keys_wait(R0, waiting[:1], outage=False)
        assert shown(registry) == (1, 0)
        events.keys_wait(R0, waiting, outage=True)
        assert shown(registry) == (0, 3)
        events.keys_wait(R0, (), outage=False)
        assert shown(registry) == (0, 0)


def test_loads_are_those_that_the_leases_of_this_host_say() -> None:
    owned = make.lease(R0).taken_by(HostName("a"), Incarnation("a-1"))
    with counting() as (events, registry):
        events.acquired(owned, Position("0"), "available", None)
        unknown = replace(owned, range=FeedRange(id=RangeId("r1")))
        leases = [owned.with_load(0.35, cooling=False), unknown]
        events.activity.fleet = make.fleet_watch().take(leases, [], NOTHING_LISTED.at)
        found = samples(registry)
        events.given_up(owned, CloseReason.HANDED_OVER)
        later = samples(registry)
    assert found["changefeed_range_load", (("range", "r0"),)] == 0.35
    assert [x for x in later if x[0] == "changefeed_range_load"] == []
    assert len([x for x in found if x[0] == "changefeed_range_load"]) == 1


def test_a_lag_is_in_changes_and_in_seconds_where_they_are_known() -> None:
    taken = make.lease(R0).taken_by(HostName("a"), Incarnation("a-1"))
    with counting() as (events, registry):
        for name in (R0, RangeId("r1")):
            lease = replace(taken, range=FeedRange(id=name))
            events.acquired(lease, Position("0"), "available", None)
        events.lag(R0, Lag(7, 2.5))
        events.lag(RangeId("r1"), Lag(3, None))
        found = samples(registry)
    owned = (("range", "r0"), ("state", "owned"))
    assert found["changefeed_lag", owned] == 7
    assert found["changefeed_lag_time_seconds", owned] == 2.5
    assert [x for x, _ in found].count("changefeed_lag_time_seconds") == 1


def test_a_range_that_no_host_reads_is_shown_until_it_is_read_again() -> None:
    with counting() as (events, registry):
        events.listed(NOTHING_LISTED, {R0: "paused"})
        events.lag(R0, Lag(9, 60.0))
        events.lag(RangeId("r1"), Lag(1, 1.0))  # no longer listed when it was measured
        of_r0 = ("changefeed_lag", (("range", "r0"), ("state", "paused")))
        found = samples(registry)
        assert {k: v for k, v in found.items() if k[0] == "changefeed_lag"} == {of_r0: 9}
        events.listed(NOTHING_LISTED, {})
        assert of_r0 not in samples(registry)


def test_the_processors_of_a_process_count_side_by_side_and_each_line_says_whose_it_is() -> (
    None
):
    with own_metrics("changefeed", "anna") as (meters, registry):
        for n, name in enumerate(("orders", "to-search")):
            meter = meters.get_meter("changefeed", attributes={"processor": name})
            events = HostEvents(HostName("anna"), meter, processor=name)
            events.listed(NOTHING_LISTED, {R0: "paused"})
            events.lag(R0, Lag(n + 1, None))
            events.renewed()
        found = samples(registry)
    for n, name in enumerate(("orders", "to-search")):
        own = ("processor", name)
        of_r0 = (own, ("range", "r0"), ("state", "paused"))
        assert found["changefeed_lease_renewals_total", (own,)] == 1
        assert found["changefeed_lag", of_r0] == n + 1
