"""The checksums of blocks. The vectors are frozen: if one fails, whole logs look damaged."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.eventlog.checksums import (
    NONE,
    extend,
    is_column,
    is_sealed,
    is_whole,
    seal,
)
from tests.unit.feeds.eventlog.test_block_format import LAID_OUT

NUMBERS = (7, 41, 43, 1_767_225_600_000_000, 118)
SEALED = bytes.fromhex(
    "73c6e1a41a5fdd7418eae91a77382ffb79b8f89971366ce6135f611928b51b6297174d8b29bb4c0d9386a87b"
)
COLUMNS = st.lists(st.binary(max_size=40), min_size=10, max_size=10)


def test_the_checksums_of_a_block_are_what_they_always_were() -> None:
    assert seal(extend(NONE, LAID_OUT), *NUMBERS) == SEALED
    assert is_whole(SEALED, LAID_OUT, *NUMBERS)


def test_no_columns_have_the_checksums_that_an_empty_block_begins_with() -> None:
    assert extend(NONE, [b""] * 10) == NONE


@given(first=COLUMNS, second=COLUMNS)
def test_a_block_that_grew_has_the_checksums_of_one_that_was_written_at_once(
    first: Sequence[bytes], second: Sequence[bytes]
) -> None:
    whole = [x + y for x, y in zip(first, second, strict=True)]
    assert extend(extend(NONE, first), second) == extend(NONE, whole)


@given(columns=COLUMNS, data=st.data())
def test_a_byte_that_was_changed_added_or_lost_is_noticed_in_any_column(
    columns: list[bytes], data: st.DataObject
) -> None:
    sealed = seal(extend(NONE, columns), *NUMBERS)
    place = data.draw(st.integers(0, 9))
    good = columns[place]
    at = data.draw(st.integers(0, len(good)))
    flip = data.draw(st.integers(1, 255))
    damage = [good[:at] + bytes([flip]) + good[at:]]
    if at < len(good):
        damage += [good[:at] + good[at + 1 :]]
        damage += [good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]]
    for bad in damage:
        wrong = [*columns[:place], bad, *columns[place + 1 :]]
        assert not is_whole(sealed, wrong, *NUMBERS)
        assert not is_column(sealed, place, bad)
    assert is_column(sealed, place, good)


@given(place=st.integers(0, 43), flip=st.integers(1, 255))
def test_a_byte_of_the_checksums_that_was_changed_is_noticed(place: int, flip: int) -> None:
    wrong = bytes([*SEALED[:place], SEALED[place] ^ flip, *SEALED[place + 1 :]])
    assert not is_whole(wrong, LAID_OUT, *NUMBERS)


@pytest.mark.parametrize("place", range(5))
def test_a_block_is_none_of_another_place(place: int) -> None:
    numbers = list(NUMBERS)
    numbers[place] += 1
    assert not is_sealed(SEALED, *numbers)
    assert not is_whole(SEALED, LAID_OUT, *numbers)


def test_columns_that_have_changed_places_are_noticed() -> None:
    swapped = LAID_OUT._replace(keys=LAID_OUT.bodies, bodies=LAID_OUT.keys)
    assert not is_whole(SEALED, swapped, *NUMBERS)


@pytest.mark.parametrize("wrong", [None, "", b"", SEALED[:-1], SEALED + b"x", 7])
def test_what_is_no_checksum_at_all_is_damage(wrong: object) -> None:
    assert not is_whole(wrong, LAID_OUT, *NUMBERS)  # type: ignore[arg-type]
    assert not is_sealed(SEALED, None, *NUMBERS[1:])  # type: ignore[arg-type]
