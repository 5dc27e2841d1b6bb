from hypothesis import given
from hypothesis import strategies as st

from changefeed.runtime.address_options import read_options, write_options


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_options_are_read_as_they_were_written(options: dict[str, str]) -> None:
    assert read_options(write_options(options)) == options
