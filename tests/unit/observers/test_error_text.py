"""What users' errors say may be anything; what is shown and kept of it is plain and short."""

from collections.abc import Callable

import pytest

from changefeed.observers.error_text import (
    describe,
    kind_of,
    text_of,
    trace_of,
)
from tests.support.odd_errors import Opaque, Unprintable


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


class PrintableOnce(ValueError):
    printed = False

    def __str__(self) -> str:
        if self.printed:
            raise SystemExit(3)
        self.printed = True
        return "the first time"


class Odd(str):
    """A text that does not let itself be looked at."""

    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit(3)


class SaysOddly(ValueError):
    def __str__(self) -> str:
        return Odd("odd")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("no such town: \ud800", "no such town: \\ud800"),
        ("bad \udcff name", "bad \\udcff name"),
        ("nul \0 byte", "nul \\x00 byte"),
        ("\x1b[31mred\x9b", "\\x1b[31mred\\x9b"),
        ("first\n\tsecond\r", "first\n\tsecond\\x0d"),
        ("Zürich 🏔", "Zürich 🏔"),
        ("", ""),
    ],
)
def test_what_is_not_plain_text_is_shown_as_an_escape(given: str, text: str) -> None:
    error = raised(ValueError(given))
    assert text_of(error) == text
    assert trace_of(error).endswith(f"ValueError: {text}" if text else "ValueError")
    assert describe(error) == (f"ValueError: {text}" if text else "ValueError")


def test_a_class_may_have_any_name() -> None:
    assert kind_of(type("Bad\x1b", (Exception,), {})()) == "Bad\\x1b"
    long = kind_of(type(1000 * "x", (Exception,), {})())
    assert long == 169 * "x" + "… (cut; 1000 characters in all)"


@pytest.mark.parametrize(
    ("make", "first", "later"),
    [
        (Unprintable, *2 * ["(its text cannot be had: RuntimeError)"]),
        (PrintableOnce, "the first time", "(its text cannot be had: SystemExit)"),
        (Opaque, *2 * ["x"]),
        (SaysOddly, *2 * ["(its text cannot be had: SystemExit)"]),
    ],
)
def test_an_error_that_cannot_be_printed_is_described_as_far_as_it_can_be(
    make: Callable[[str], BaseException], first: str, later: str
) -> None:
    error = raised(make("x"))
    assert text_of(error) == first
    assert text_of(error) == later
    assert describe(error) == f"{make.__name__}: {later}"
    assert trace_of(error)
