"""Partition keys as text, and back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.cosmos.keys import key_text, key_values, steps_of

NO_KEY = r"partition key|JSON|truncated"
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEVEL = st.text() | NUMBERS | st.booleans() | st.none() | st.just(msgspec.UNSET)


def is_number(x: object) -> bool:
    return isinstance(x, int | float)


@given(st.lists(LEVEL, min_size=1, max_size=3))
def test_a_key_is_read_from_its_text_as_it_was(levels: list[object]) -> None:
    found = key_values(key_text(levels), len(levels))
    same = [msgspec.UNSET if x == {} else x for x in found]
    assert key_text(same) == key_text(levels)
    assert [*map(type, same)] == [*map(type, levels)] or any(map(is_number, levels))


@pytest.mark.parametrize("text", ["=[1]", '={"a": 1}', "=", "=nan", "=1" + "0" * 400])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=NO_KEY):
        key_values(text, 1)
    with pytest.raises(ValueError, match=NO_KEY):
        key_values(f"[{text[1:]}, 2]", 2)


def test_a_step_of_a_path_may_be_quoted() -> None:
    assert steps_of("/a/b") == ("a", "b")
    assert steps_of("""/"a/b"/'c d'/it's/é""") == ("a/b", "c d", "it's", "é")
