"""What ``doctor`` found, as a table: whole, and with what is to be done."""

import pytest
import typer

from changefeed.cli.io.diagnostics import print_diagnostics
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.runtime.diagnostics import failed, fine, problem


def test_a_problem_ends_with_the_code_that_was_given() -> None:
    with pytest.raises(typer.Exit) as ended:
        print_diagnostics([fine("a", "b"), problem("c", "d")], json=True, exit_code=7)
    assert ended.value.exit_code == 7


def test_what_does_not_answer_comes_with_advice_and_what_is_refused_is_advice_itself() -> None:
    silent = failed("feed", FeedUnavailable("no answer"))
    assert (silent.text, bool(silent.advice)) == ("no answer", True)
    assert failed("feed", FeedRefused("write it so")).advice == ""
