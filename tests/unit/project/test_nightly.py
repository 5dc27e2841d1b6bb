"""The list of what waits for the night names what there is."""

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
        "integration/pipeline/test_eras.py::test_x[None]",
    ],
)
def test_exceptions_do_not_wait_for_the_night(node: str) -> None:
    assert not is_nightly(f"tests/{node}")


@pytest.mark.parametrize(
    "node", ["strangers/test_keda.py::test_x", "acceptance/test_run.py::test_x[a]"]
)
def test_all_else_in_a_folder_of_the_list_waits(node: str) -> None:
    assert is_nightly(f"tests/{node}")
