"""What is not run: the list of what waits for the night, and the reasons of skips."""

import re
from pathlib import Path

import pytest

from tests.nightly import EACH_CHANGE, NIGHTLY, is_nightly

TESTS = Path(__file__).parents[2]


def test_folders_and_tests_of_the_list_are_there() -> None:
    assert [x for x in NIGHTLY if not (TESTS / x).exists()] == []
    wrong = [
        f"{file}: {test}"
        for file, tests in EACH_CHANGE.items()
        for test in tests or [""]
        if f"def {test}" not in (TESTS / file).read_text()
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "node",
    [
        "unit/runtime/test_signals.py::test_x",
        "acceptance/test_run.py::test_sigterm_releases_the_leases_and_keeps_their_continuations",
        "acceptance/test_hard_starts.py::test_x[None]",
    ],
)
def test_exceptions_do_not_wait_for_the_night(node: str) -> None:
    assert not is_nightly(f"tests/{node}")


@pytest.mark.parametrize(
    "node", ["strangers/test_keda.py::test_x", "acceptance/test_run.py::test_x[a]"]
)
def test_all_else_in_a_folder_of_the_list_waits(node: str) -> None:
    assert is_nightly(f"tests/{node}")


def test_what_is_not_installed_is_named_with_the_command_that_brings_it() -> None:
    bring = re.compile(r": (\S+=\S+ )?(apt-get|npm|pip|go) install |: \.ci/nightly$")
    files = [x for top in (TESTS, TESTS.parent / "emulator/tests") for x in top.rglob("*.py")]
    said = re.compile(r'"([\w{}[\]]+ is not installed.*)"')
    reasons = {x for file in files for x in said.findall(file.read_text())}
    assert len(reasons) > 10
    assert [x for x in reasons if not bring.search(x)] == []
