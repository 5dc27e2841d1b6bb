"""The proof of the tables of the flights: each claim fails when its table is wrong."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.settings import PipelineSettings
from samples.delays.tables import Day, NoTable, days, settings_of
from samples.flights.kept import Row, carriers, changes, latest
from samples.flights.observer import Carrier
from samples.flights.proof import totals
from samples.flights.straight import Last
from samples.flights.table_proof import prove_tables
from tests.unit.samples.test_flight_proof import EXPECTED, FIGURES, proof

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


@pytest.mark.parametrize("name", Last._fields)
def test_a_wrong_field_of_a_last_state_is_noticed_whichever_it_is(name: str) -> None:
    number, last = LATEST[0]
    wrong = [(number, Last(**{**last._asdict(), name: "XX"})), *LATEST[1:]]
    problems = broken(latest=wrong)["latest"]
    assert problems[0] == f"flight 1: {name} is 'XX' instead of {getattr(last, name)!r}"


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


@pytest.mark.parametrize("read", [changes, latest, days])
def test_a_table_that_was_never_made_is_told_apart_from_an_empty_one(
    tmp_path: Path, read: Callable[[PipelineSettings], object]
) -> None:
    with pytest.raises(NoTable, match="run python -m samples"):
        read(settings_of(tmp_path))
