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
        for test in tests
        if f"def {test}" not in (TESTS / file).read_text()
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("node", "waits"),
    [
        ("unit/runtime/test_signals.py::test_x", False),
        ("acceptance/test_stop_signals.py::test_a_hang_up_is_an_orderly_stop[x]", False),
        ("acceptance/test_run.py::test_x[a]", True),
        ("strangers/test_keda.py::test_x", True),
    ],
)
def test_a_folder_of_the_list_waits_but_for_its_exceptions(node: str, *, waits: bool) -> None:
    assert is_nightly(f"tests/{node}") == waits


def test_what_is_not_installed_is_named_with_the_command_that_brings_it() -> None:
    bring = re.compile(r": (\S+=\S+ )?(apt-get|npm|pip|go) install |: \.ci/nightly$")
    files = [x for top in (TESTS, TESTS.parent / "emulator/tests") for x in top.rglob("*.py")]
    said = re.compile(r'"([\w{}[\]]+ is not installed.*)"')
    reasons = {x for file in files for x in said.findall(file.read_text())}
    assert len(reasons) > 10
    assert [x for x in reasons if not bring.search(x)] == []
