"""The proof of the tables of the flights: each claim fails when its table is wrong."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.settings import PipelineSettings
from samples.delays.tables import Day, NoTable, NotKept, days, departures, settings_of
from samples.flights.kept import Row, carriers, changes, latest
from samples.flights.observer import Carrier
from samples.flights.proof import totals
from samples.flights.straight import Last, straight_from
from samples.flights.table_proof import prove_tables
from tests.unit.samples.test_flight_proof import EXPECTED, FIGURES, proof
from tests.unit.samples.test_flight_proof import row as a_flight

CLAIMS = ("changes", "order", "latest", "figures")
ENDS = {RangeId("p0"): 6, RangeId("p1"): 2}
HOME = {"N1": RangeId("p0"), "N2": RangeId("p1")}


def row(sequence: int, flight: str, kind: str, key: str, at_us: int) -> Row:
    return Row(0, HOME[key], sequence, key, flight, kind, at_us)


CHANGES = [
    row(4, "1", "arrived", "N1", 40),
    row(5, "2", "departed", "N1", 50),
    row(6, "2", "arrived", "N1", 60),
    row(1, "3", "scheduled", "N2", 10),
    row(2, "3", "cancelled", "N2", 20),
    row(1, "1", "scheduled", "N1", 10),
    row(2, "2", "scheduled", "N1", 20),
    row(3, "1", "departed", "N1", 30),
]
ROUTE = ("1545", "EWR", "IAH")
LATEST = [
    ("1", Last("arrived", "UA", *ROUTE, 11)),
    ("2", Last("arrived", "UA", *ROUTE, None)),
    ("3", Last("cancelled", "DL", *ROUTE, None)),
]


def day(carrier: str, kind: str, changes: int, **more: int) -> Day:
    figures = {"timed": 0, "late": 0, "delay": 0} | more
    return Day(carrier=carrier, day=date(2013, 1, 1), kind=kind, changes=changes, **figures)


DAYS = [
    day("UA", "scheduled", 2),
    day("UA", "departed", 1, timed=1, late=1, delay=15),
    day("UA", "departed", 1, timed=1, delay=-2),
    day("UA", "arrived", 2, timed=1, late=9, delay=11),  # late arrivals are no figure
    day("DL", "scheduled", 1),
    day("DL", "cancelled", 1),
]


def broken(**tables: Any) -> dict[str, Sequence[str]]:
    """Name the claims that do not hold of some tables, and why."""
    right: Mapping[str, Any] = {
        "changes": CHANGES,
        "latest": LATEST,
        "figures": carriers(DAYS),
        "ends": ENDS,
        "observed": totals(FIGURES.values()),
    }
    found = prove_tables(EXPECTED, proof(), **{**right, **tables})
    return {name: x.problems for name, x in zip(CLAIMS, found, strict=True) if not x.holds}


def test_it_holds_for_tables_in_which_all_is_right() -> None:
    assert broken() == {}


def test_a_change_that_is_missing_is_named_by_range_and_by_flight() -> None:
    assert broken(changes=CHANGES[1:]) == {
        "changes": ["change 4 of p0 is missing", "that flight 1 arrived is missing"]
    }


def test_a_change_that_is_there_twice_is_noticed() -> None:
    assert broken(changes=[*CHANGES, CHANGES[2]]) == {
        "changes": [
            "change 6 of p0 is there too often",
            "that flight 2 arrived is there too often",
        ]
    }


def test_a_change_that_the_feed_does_not_have_is_noticed() -> None:
    assert broken(changes=[*CHANGES, row(3, "3", "departed", "N2", 30)]) == {
        "changes": [
            "change 3 of p1 is there too often",
            "that flight 3 departed is there too often",
        ]
    }


def test_a_change_under_the_sequence_of_another_is_noticed() -> None:
    swapped = [CHANGES[0]._replace(sequence=3), *CHANGES[1:7], CHANGES[7]._replace(sequence=4)]
    assert broken(changes=swapped) == {"order": ["30 of key N1 came in (0, 'p0') after 40"]}


def test_a_key_in_two_ranges_is_noticed() -> None:
    strays = [
        *CHANGES[:3],
        *(x._replace(key="N1", at_us=70) for x in CHANGES[3:5]),
        *CHANGES[5:],
    ]
    assert broken(changes=strays) == {"order": ["key N1 came in (0, 'p0') and in (0, 'p1')"]}


@pytest.mark.parametrize("name", Last._fields)
def test_a_wrong_field_of_a_last_state_is_noticed_whichever_it_is(name: str) -> None:
    number, last = LATEST[0]
    wrong = [(number, Last(**{**last._asdict(), name: "XX"})), *LATEST[1:]]
    problems = broken(latest=wrong)["latest"]
    assert problems[0] == f"flight 1: {name} is 'XX' instead of {getattr(last, name)!r}"


def test_a_state_that_came_to_no_host_is_noticed() -> None:
    assert broken(latest=[(LATEST[0][0], LATEST[2][1]), *LATEST[1:]])["latest"][-1] == (
        "flight 1 cancelled, and the last that came to a host is that it was arrived"
    )


def test_a_flight_that_is_missing_or_there_twice_or_unknown_is_noticed() -> None:
    assert broken(latest=[*LATEST[1:], LATEST[1], ("9", LATEST[1][1])]) == {
        "latest": [
            "flight 1 is missing",
            "there is no flight 9",
            "flight 2 is there 2 times",
            "flight 9 arrived, and the last that came to a host is that it was never there",
        ]
    }


@pytest.mark.parametrize("name", Carrier.__struct_fields__)
def test_a_wrong_figure_is_noticed_whichever_it_is(name: str) -> None:
    found = dict(carriers(DAYS))
    found["DL"] = msgspec.structs.replace(found["DL"], **{name: 7})
    (first, second) = broken(figures=found)["figures"]
    assert first.startswith(f"carrier DL: {name} is 7 instead of ")
    assert second == f"{first}, say the observers"


def test_figures_that_the_observers_do_not_have_are_noticed() -> None:
    observed = {**totals(FIGURES.values()), "DL": Carrier(scheduled=1)}
    (problem,) = broken(observed=observed)["figures"]
    assert problem == "carrier DL: cancelled is 1 instead of 0, say the observers"


def test_the_last_of_a_flight_of_which_nothing_more_is_known_is_its_departure() -> None:
    assert straight_from([(1, a_flight("UA", "7", "", ""))]).last == {
        "1": Last("departed", "UA", *ROUTE, 7)
    }


def test_departures_are_added_up_by_carrier() -> None:
    (name,) = found = departures(DAYS)
    assert (name, found[name].count, found[name].delay, found[name].mean) == ("UA", 2, 13, 6.5)


@pytest.mark.parametrize("read", [changes, latest, days])
def test_a_table_that_was_never_made_is_told_apart_from_an_empty_one(
    tmp_path: Path, read: Callable[[PipelineSettings], object]
) -> None:
    with pytest.raises(NoTable, match="run python -m samples"):
        read(settings_of(tmp_path))


def test_of_what_a_failed_command_said_its_advice_is_told() -> None:
    said = "WARN: noise\nchangefeed: Java is too old\n  take another\nTraceback"
    assert str(NotKept(2, said)) == "Java is too old\n  take another\nTraceback"
    assert str(NotKept(-9, "a\nb\nc\nd\ne\nf")) == (
        "changefeed pipeline ended with code -9; what it said ends:\nb\nc\nd\ne\nf"
    )
