"""What the demo shows, and the rate it tells."""

import io
from dataclasses import replace

from rich.console import Console

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.lease import HostName, Lease
from samples.flights.observer import Carrier, Figures
from samples.flights.screen import Rate, Screen, carriers_table, table, tables_table
from samples.flights.watch import TableSight, availability


def lease(part: str, owner: str | None, *, ended: bool = False) -> Lease:
    name = None if owner is None else HostName(owner)
    return Lease(range=FeedRange(id=RangeId(f"e1.{part}.v00-ff")), owner=name, ended=ended)


SIGHT = availability(
    [lease("p00", "a"), lease("p01", None), lease("p02", None, ended=True)],
    [],
    [Figures(up_to=50), Figures(up_to=100)],
    total=200,
)
STATES = {"a": "running", "b": "killed"}


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_the_rate_is_that_of_the_last_three_seconds() -> None:
    now = 0.0
    rate = Rate(clock=lambda: now)
    assert rate.of(0) == 0.0
    now = 2.0
    assert rate.of(100) == 50.0
    now = 5.0
    assert rate.of(700) == 200.0  # since the moment at 2 s; the one at 0 s is forgotten


def test_before_there_are_leases_nothing_is_done() -> None:
    assert availability([], [], [], total=200).done == 0
    assert SIGHT.done == 150


def test_the_table_shows_who_has_which_leases_and_how_far_they_got() -> None:
    shown = console(terminal=True)
    shown.print(table(SIGHT, STATES, Rate()))
    rows = [line.split() for line in text_of(shown).splitlines()]
    assert ["│", "a", "│", "running", "│", "■", "│", "p00", "│"] in rows
    assert ["│", "b", "│", "killed", "│", "│", "│"] in rows
    assert ["1", "leases", "without", "an", "owner"] in rows
    assert ["150", "of", "200", "changes", "75.0%", "0/s"] in rows


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    shown = console(terminal=False)
    with Screen(shown).live() as show:
        for _ in range(3):
            show(SIGHT, STATES)
    (line,) = text_of(shown).splitlines()
    assert line.endswith("150 of 200 changes 75.0%        0/s   leases: a 1  b 0")


def test_brokers_are_shown_with_their_ranges_on_a_terminal_and_elsewhere() -> None:
    sight = replace(SIGHT, brokers="era 2: broker-1 4, broker-2 8")
    for terminal in (True, False):
        shown = console(terminal=terminal)
        with Screen(shown).live() as show:
            show(sight, STATES)
        assert "era 2: broker-1 4, broker-2 8" in " ".join(text_of(shown).split())


def test_a_carrier_without_departures_has_no_mean() -> None:
    shown = console(terminal=False)
    shown.print(carriers_table({"XX": Carrier(scheduled=2, cancelled=1)}, {}))
    assert "│ XX      │       2 │     50.0% │    - │        - │       - │" in text_of(shown)


def test_it_is_shown_whose_figures_are_not_those_of_the_data() -> None:
    shown = console(terminal=False)
    right, wrong = Carrier(scheduled=2), Carrier(scheduled=2, late=1)
    found = {"hosts": {"XX": right, "YY": wrong}, "tables": {"XX": wrong}}
    shown.print(carriers_table({"XX": right, "YY": right}, found))
    ends = [line.split("│")[-3:-1] for line in text_of(shown).splitlines() if "│ " in line]
    assert [[x.strip() for x in pair] for pair in ends] == [
        ["equal", "DIFFERS"],
        ["DIFFERS", "DIFFERS"],
    ]


TABLES = [
    TableSight(table="changes", batches=2, done=150, total=200),
    TableSight(table="latest", batches=0, done=0, total=200),
]


def test_the_tables_are_shown_with_how_far_each_of_them_is() -> None:
    now = 0.0
    rate = Rate(clock=lambda: now)
    waiting = [TableSight(table="changes", batches=0, done=0, total=200)]
    shown = console(terminal=True)
    shown.print(tables_table(waiting, rate, 1.5))
    now = 2.0
    shown.print(tables_table(TABLES, rate, 3.5))
    lines = text_of(shown).splitlines()
    assert "   1.5 s  Spark is in its first batch" in lines
    assert "   3.5 s  75/s" in lines
    cells = [[x.strip() for x in line.split("│")] for line in lines if "│" in line]
    told = [(x[1], x[2], x[3].count("━"), x[4]) for x in cells]
    assert ("changes", "2", 22, "150 of 200") in told  # three quarters of 30
    assert ("latest", "0", 0, "0 of 200") in told


def test_without_a_terminal_the_tables_are_told_in_a_line() -> None:
    shown = console(terminal=False)
    with Screen(shown).live_tables() as show:
        for _ in range(3):
            show(TABLES)
    (line,) = text_of(shown).splitlines()
    assert line.endswith("changes 150  latest 0  of 200 changes  0/s")
