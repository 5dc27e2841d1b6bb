"""What is said of a PostgreSQL server before hosts keep leases there."""

import pytest

from changefeed.leases.postgres.diagnostics import server_diagnostics
from changefeed.runtime.diagnostics import Severity

SERVER = {
    "version": "15.8",
    "number": 150008,
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "standby": False,
    "connections": 100,
}


def said(**settings: object) -> dict[str, Severity]:
    return {x.about: x.severity for x in server_diagnostics({**SERVER, **settings})}


def test_a_server_as_it_is_installed_is_fine() -> None:
    assert said() == {"server": Severity.FINE, "durability": Severity.FINE}


def test_a_version_without_fixes_is_warned_of() -> None:
    assert said(number=110022)["server"] is Severity.WARNING


@pytest.mark.parametrize("level", ["local", "remote_write", "remote_apply"])
def test_a_commit_that_the_primary_waits_for_is_fine(level: str) -> None:
    assert said(synchronous_commit=level)["durability"] is Severity.FINE


def test_a_commit_that_nothing_waits_for_is_warned_of() -> None:
    assert said(synchronous_commit="off")["durability"] is Severity.WARNING


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_a_power_cut_destroys_is_a_problem(setting: str) -> None:
    found = said(**{setting: "off", "synchronous_commit": "off"})
    assert found["durability"] is Severity.PROBLEM
