from hypothesis import given
from hypothesis import strategies as st

from changefeed.runtime.address_options import read_options, write_options


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_options_are_read_as_they_were_written(options: dict[str, str]) -> None:
    assert read_options(write_options(options)) == options


def test_a_plus_stands_for_itself() -> None:
    """The prefix of Java's leases has resource ids in it, which users copy as they are."""
    assert read_options("prefix=fleet_x+ePAA==_x+ePAJ7IKW0=&mode=") == {
        "prefix": "fleet_x+ePAA==_x+ePAJ7IKW0=",
        "mode": "",
    }


def test_what_would_end_a_value_is_written_in_percents() -> None:
    assert read_options("prefix=a%26b%25&b=%2B") == {"prefix": "a&b%", "b": "+"}
