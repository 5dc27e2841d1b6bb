"""Tables that no name is cut in, and that are as harmless as text can be."""

import pytest
from rich.text import Text

from changefeed.cli.io.tables import a_table, plain, print_whole


def test_what_others_wrote_is_no_markup_and_moves_no_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    styled = Text("ok", style="green")
    print_whole(a_table("a", "b", rows=[("\x1b[31m[bold]\nx\u202e", styled)]))
    print_whole(plain("paused: \x1b]0;title\x07"))
    out = capsys.readouterr().out
    assert "│  [31m[bold] x  │ ok │" in out
    assert "paused:  ]0;title \n" in out
