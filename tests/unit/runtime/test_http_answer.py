"""How long an HTTP answer asks to wait."""

import pytest

from changefeed.runtime.http_answer import retry_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("9" * 400, pytest.approx(1e20)),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:00:00", 0.0),
        *((x, None) for x in ("", "soon", "-5", "0.5", "nan", "inf", "٣")),
        ("Thu, 01 Jan 2026 00:00:00 +99999999999999", None),
    ],
)
def test_a_finite_number_or_a_date_is_understood_and_all_else_says_nothing(
    text: str, seconds: float | None
) -> None:
    assert retry_after(text) == seconds


def test_a_date_to_come_is_as_far_away_as_it_is() -> None:
    wait = retry_after("Fri, 31 Dec 9999 23:59:59 GMT")
    assert wait is not None
    assert wait > 1000 * 365 * 86_400.0
