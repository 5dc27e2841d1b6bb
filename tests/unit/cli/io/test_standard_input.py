"""What is asked, and what counts as an answer."""

import io
import sys

import pytest

from changefeed.cli.io.standard_input import confirmed, open_standard_input
from changefeed.runtime.errors import UserError


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("y\n", True),
        ("yes\n", True),
        ("n\n", False),
        ("\n", False),
        ("maybe\ny\n", True),
        ("", False),
        ("maybe\n", False),
    ],
)
def test_only_a_yes_is_one_and_the_end_of_the_input_is_a_no(
    monkeypatch: pytest.MonkeyPatch, *, given: str, answer: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert confirmed("Move 2 ranges?") is answer


def test_an_input_that_is_closed_answers_no_and_is_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert confirmed("Move 2 ranges?") is False
    assert "--yes" in capsys.readouterr().out
    with pytest.raises(UserError, match="standard input is closed"):
        open_standard_input()
