"""Tables that no name is cut in, and that are as harmless as text can be."""

import pytest
from rich.console import Console
from rich.text import Text

from changefeed.cli.exit_codes import print_error
from changefeed.cli.io.report import say
from changefeed.cli.io.tables import a_table, plain, print_whole

LONG = "production-orders-service-eu-west-1a-78f9c5d6b4"


def test_a_name_is_whole_on_a_narrow_terminal() -> None:
    console = Console(width=30, force_terminal=True)
    with console.capture() as captured:
        console.print(a_table("host", "lag", rows=[(LONG, "1,234")]))
    cells = [x.split("│")[1] for x in captured.get().splitlines() if x.startswith("│")]
    assert "".join(x.strip() for x in cells) == LONG
    assert "…" not in captured.get()


def test_a_row_is_a_line_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_whole(a_table("host", "host", rows=[(LONG, LONG)]))
    assert f"│ {LONG} │ {LONG} │" in capsys.readouterr().out


def test_what_others_wrote_is_no_markup_and_moves_no_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    styled = Text("ok", style="green")
    print_whole(a_table("a", "b", rows=[("\x1b[31m[bold]\nx\u202e", styled)]))
    print_whole(plain("paused: \x1b]0;title\x07"))
    out = capsys.readouterr().out
    assert "│  [31m[bold] x  │ ok │" in out
    assert "paused:  ]0;title \n" in out


def test_lines_are_kept_in_what_is_said_and_nothing_else_that_moves_a_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("one\ntwo\x1b[2J")
    print_error("three\n  four\x9b1A")
    said = capsys.readouterr()
    assert said.out == "one\ntwo [2J\n"
    assert said.err == "changefeed: three\n  four 1A\n"
