"""What ``doctor`` found, as a table: whole, and with what is to be done."""

from collections.abc import Sequence

import pytest
import typer

from changefeed.cli.doctor import _failed
from changefeed.cli.io.diagnostics import print_diagnostics
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning

LONG = "production-orders-service-eu-west-1a-78f9c5d6b4-" * 3


def printed(found: Sequence[Diagnostic], capsys: pytest.CaptureFixture[str]) -> str:
    print_diagnostics(found, json=False, exit_code=1)
    return capsys.readouterr().out


def test_names_and_reasons_are_whole_in_a_pipe_with_a_line_for_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = printed([warning(f"host {LONG}", f"it does not answer {LONG}", "look")], capsys)
    assert f"│ host {LONG} │ it does not answer {LONG} │ look " in out


def test_what_others_wrote_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed([warning("host \x1b[2J", "[bold]a\nb", "\x9b1A")], capsys)
    assert "│ host  [2J │ [bold]a b │  1A" in out


def test_nothing_to_do_has_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert "what to do" not in printed([fine("feed", "it has 3 ranges")], capsys)
    found = [fine("feed", "it has 3 ranges"), warning("leases", "few", "wait")]
    assert "what to do" in printed(found, capsys)


def test_a_problem_ends_with_the_code_that_was_given() -> None:
    with pytest.raises(typer.Exit) as ended:
        print_diagnostics([fine("a", "b"), problem("c", "d")], json=True, exit_code=7)
    assert ended.value.exit_code == 7


def test_what_does_not_answer_comes_with_advice_and_what_is_refused_is_advice_itself() -> None:
    silent = _failed("feed", FeedUnavailable("no answer"))
    assert (silent.text, bool(silent.advice)) == ("no answer", True)
    assert _failed("feed", FeedRefused("write it so")).advice == ""
