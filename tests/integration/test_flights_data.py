"""The rules about flights, held against every flight of the real data."""

from collections import Counter
from datetime import timedelta

from samples.flights.changes import Kind, steps_of
from samples.flights.data import Sample, zones
from samples.flights.straight import straight_from


def test_every_flight_of_the_year_follows_the_rules_and_none_outflies_its_air_time() -> None:
    places, kinds = zones(), Counter[Kind]()
    for _, row in Sample().rows():
        steps = steps_of(row, places)
        kinds.update(x.kind for x in steps)
        if row["air_time"]:
            _, departed, arrived = steps
            on_the_ground = arrived.at - departed.at - timedelta(minutes=int(row["air_time"]))
            assert timedelta(0) <= on_the_ground < timedelta(hours=4)
    assert kinds == {
        Kind.SCHEDULED: 336_776,
        Kind.DEPARTED: 328_521,
        Kind.ARRIVED: 328_063,
        Kind.CANCELLED: 8_255,
    }


def test_the_same_scale_and_seed_pick_the_same_flights_in_every_process() -> None:
    sample = Sample(scale=0.001, seed=7)
    picked = [number for number, _ in sample.rows()]
    assert picked == [number for number, _ in sample.rows()]
    assert 250 < len(picked) < 430
    expected = straight_from(sample.rows())
    assert [int(x) for x in expected.happened] == picked
    assert sum(x.scheduled for x in expected.carriers.values()) == len(picked)
