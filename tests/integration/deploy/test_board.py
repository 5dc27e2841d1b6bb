"""Grafana's board, over metrics that real hosts have given."""

import json
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.claims import pause
from changefeed.observers.observer import Context
from tests.support.promtool import check_expressions
from tests.support.recorded_metrics import RecordedFleet

pytestmark = pytest.mark.virtual_time

BOARD = Path(__file__).parents[3] / "deploy/grafana/changefeed.json"
R0, R1 = RangeId("r0"), RangeId("r1")


class FailsOnSome:
    """Fails on one change in six."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context
        if any(x.key.endswith("-3") for x in changes):
            raise ValueError("no such column")


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [x for x in board()["panels"] if x["type"] != "row"]


def expressions() -> list[str]:
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [x.replace("$job", "shop").replace("$__rate_interval", "5m") for x in found]


async def test_each_expression_finds_something_in_a_fleet_that_has_seen_much(
    tmp_path: Path,
) -> None:
    parts = {"observer": {"on_failure": "dead-letter"}}
    async with RecordedFleet(FailsOnSome, parts=parts) as fleet:
        fleet.start("a")
        fleet.start("b")
        await fleet.live(3, changes=6)
        await pause(fleet.container, [R1], "bad data")
        fleet.events["a"].retrying("read", ValueError("it does not answer"), 1.0)
        await fleet.live(8, changes=6)
        fleet.events["a"].observer_gave_up(R0, ValueError("no such column"), 30.0)
        await fleet.live(3, changes=6)
        some = [{"labels": "{}", "value": 1}]
        found = {f"vector(1) and on () ({x})": some for x in expressions()}
        check_expressions(tmp_path, fleet.series, fleet.minutes, found)


def test_panels_lie_beside_each_other_and_say_what_they_show() -> None:
    shown = board()["panels"]
    assert len({x["id"] for x in shown}) == len(shown)
    for one, other in combinations([x["gridPos"] for x in shown], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(x["description"] and x["title"] for x in panels())


def test_the_board_is_for_one_fleet_and_any_data_source() -> None:
    for one in expressions():
        assert all('job="shop"' in x for x in re.findall(r"changefeed_\w+\{[^}]*\}", one))
        assert not re.search(r"changefeed_\w+(?![\w{])", one), one
    assert {x["datasource"]["uid"] for x in panels()} == {"${datasource}"}
    assert [x["name"] for x in board()["templating"]["list"]] == ["datasource", "job"]


def test_no_query_takes_ranges_of_two_processors_for_one() -> None:
    """Ranges of two containers have the same names."""
    for file in BOARD.parents[1].rglob("*.*"):
        for by in re.findall(r"by \(([^)]*)\)", file.read_text()):
            assert "range" not in by or "processor" in by, file
