"""How long an HTTP answer asks to wait."""

import pytest

from changefeed.runtime.http_answer import retry_after

_A_YEAR = 365 * 86_400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:00:00", 0.0),
    ],
)
def test_a_number_and_a_date_that_is_over_are_understood(text: str, seconds: float) -> None:
    assert retry_after(text) == seconds


def test_a_date_to_come_is_as_far_away_as_it_is() -> None:
    wait = retry_after("Fri, 31 Dec 9999 23:59:59 GMT")
    assert wait is not None
    assert wait > 1000 * _A_YEAR


def test_a_number_without_an_end_is_finite() -> None:
    assert retry_after("9" * 400) == pytest.approx(1e20)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5", "0.5", "nan", "inf", "٣", "Thu, 01 Jan 2026 00:00:00 +99999999999999"],
)
def test_what_is_neither_says_nothing(text: str) -> None:
    assert retry_after(text) is None
