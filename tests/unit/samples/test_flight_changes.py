"""From rows about flights to what happened, with rows made by hand."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from changefeed.feeds.feed import Operation
from samples.flights.changes import Kind, State, Step, in_order, records, steps_of
from samples.flights.data import Row

ZONES = {"IAH": ZoneInfo("America/Chicago"), "SJU": ZoneInfo("America/Puerto_Rico")}


def row(**differing: str) -> Row:
    """The first flight of the file: it left New York two minutes late, at 5:17."""
    return {
        "time_hour": "2013-01-01T10:00:00Z",
        "minute": "15",
        "dep_time": "517",
        "dep_delay": "2",
        "arr_time": "830",
        "arr_delay": "11",
        "carrier": "UA",
        "flight": "1545",
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        **differing,
    }


def at(day: int, hour: int, minute: int) -> datetime:
    return datetime(2013, 1, day, hour, minute, tzinfo=UTC)


LATE_EVENING = {"time_hour": "2013-01-02T04:00:00Z", "minute": "50"}  # 23:50 in New York
CANCELLED = {"dep_time": "", "dep_delay": "", "arr_time": "", "arr_delay": ""}


def test_a_flight_is_scheduled_a_day_before_departs_and_arrives_by_the_clock_there() -> None:
    assert steps_of(row(), ZONES) == [
        Step(datetime(2012, 12, 31, 10, 15, tzinfo=UTC), Kind.SCHEDULED),
        Step(at(1, 10, 17), Kind.DEPARTED, 2),
        Step(at(1, 14, 30), Kind.ARRIVED, 11),
    ]


def test_an_arrival_shown_by_a_clock_behind_the_departure_is_the_same_morning() -> None:
    quick = row(arr_time="416")  # Chicago's clock shows 4:17 when New York's shows 5:17
    assert steps_of(quick, ZONES)[2].at == at(2, 10, 16)
    assert steps_of(row(arr_time="418"), ZONES)[2].at == at(1, 10, 18)


def test_a_diverted_flight_arrives_without_a_delay() -> None:
    assert steps_of(row(arr_delay=""), ZONES)[2] == Step(at(1, 14, 30), Kind.ARRIVED, None)


def test_a_flight_without_a_departure_is_cancelled_when_it_should_have_left() -> None:
    assert steps_of(row(**CANCELLED), ZONES)[1:] == [Step(at(1, 10, 15), Kind.CANCELLED)]


def test_changes_of_all_flights_come_in_the_order_of_their_times() -> None:
    later = row(**LATE_EVENING, **CANCELLED, tailnum="N2")
    found = records(in_order([(7, later), (3, row())], ZONES))
    assert [(x.id, msgspec.json.decode(x.body, type=State).kind) for x in found] == [
        ("3", Kind.SCHEDULED),
        ("7", Kind.SCHEDULED),
        ("3", Kind.DEPARTED),
        ("3", Kind.ARRIVED),
        ("7", Kind.CANCELLED),
    ]
    times = [x.committed_us or 0 for x in found]
    assert times == sorted(times)
    assert times[2] == at(1, 10, 17).timestamp() * 1_000_000


def test_a_record_carries_the_whole_state_of_its_flight_under_the_aircraft() -> None:
    scheduled, departed, _ = records(in_order([(1, row())], ZONES))
    assert (scheduled.key, scheduled.id, scheduled.operation) == (
        *("N14228", "1"),
        Operation.INSERT,
    )
    assert departed.operation is Operation.REPLACE
    assert msgspec.json.decode(departed.body) == {
        "kind": "departed",
        "carrier": "UA",
        "flight": "1545",
        "origin": "EWR",
        "dest": "IAH",
        "delay": 2,
    }


def test_where_the_aircraft_is_unknown_the_carrier_is_the_key() -> None:
    found = records(in_order([(1, row(**CANCELLED, tailnum=""))], ZONES))
    assert {x.key for x in found} == {"UA"}
