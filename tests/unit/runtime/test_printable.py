"""What others wrote does nothing to a terminal but to be read on it."""

from ssl import SSLError
from typing import Any

import pytest

from changefeed.runtime.errors import in_one_line
from changefeed.runtime.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 東京 [bold]", "Grüße, 東京 [bold]"),
        ("\x1b[31mred\x07", " [31mred "),
        ("a\u202eb\u200bc", "a b c"),
        ("a\r\n\tb\x9b", "a   b "),
        ("a\udcffb", "a\\udcffb"),  # a byte of a path that is no text
        ("", ""),
    ],
)
def test_what_moves_a_cursor_or_turns_a_line_is_a_space(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_what_an_error_says_is_one_short_line() -> None:
    errors = ValueError("first\r\n  second\x1b\t" + 400 * "x"), TimeoutError()
    assert [*map(in_one_line, errors)] == [f"first second {286 * 'x'}…", "TimeoutError"]


def test_a_number_of_tls_is_no_number_of_the_system() -> None:
    plain_server = SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    plain_server.reason = "WRONG_VERSION_NUMBER"
    error: Any = OSError("cannot connect")
    error.os_error = plain_server
    assert in_one_line(error).startswith("TLS: wrong version number; look at the scheme")


def test_what_is_to_be_kept_is_kept() -> None:
    assert printable("a\n\tb\x1b", keep="\n") == "a\n b "
