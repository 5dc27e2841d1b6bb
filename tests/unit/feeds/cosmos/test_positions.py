"""Positions of a Cosmos DB feed: the texts that leases keep, and what is made of them."""

import base64
import json

import pytest

from changefeed.feeds.cosmos.positions import (
    BEGINNING,
    check_position,
    client_token,
    lsn_of,
    position,
    position_after,
    sequences,
    session_lsn,
)
from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Position, RangeId


def test_a_position_is_the_etag_with_its_quotes_as_other_processors_keep_it() -> None:
    assert position(7052) == '"7052"'
    assert lsn_of(position(7052)) == 7052
    assert position(0) == BEGINNING


def test_a_position_that_the_server_writes_in_its_own_way_is_kept_but_not_understood() -> None:
    check_position(RangeId("7"), Position('"7052|3"'))
    assert lsn_of(Position('"7052|3"')) is None


@pytest.mark.parametrize("wrong", ["", "7052", '"', '""', '"1" ', '"1""2"', '"a b"', "W/1"])
def test_what_is_no_etag_is_refused(wrong: str) -> None:
    with pytest.raises(RangeRefused, match="'7' cannot be read"):
        check_position(RangeId("7"), Position(wrong))


def test_changes_of_one_transaction_have_growing_sequences_and_one_position_behind_them() -> (
    None
):
    numbers = sequences([4, 5, 5, 5, 9])
    assert numbers == sorted(set(numbers))
    assert [position_after(x) for x in numbers] == ['"4"', '"4"', '"4"', '"5"', '"9"']


def test_a_transaction_with_more_changes_than_places_never_says_too_late() -> None:
    numbers = sequences([3] * 65_540 + [4])
    assert len(numbers) == 65_541
    assert numbers == sorted(numbers)
    assert numbers[65_534:65_541] == [(3 << 16) + 65_534] * 5 + [(4 << 16) - 1, (5 << 16) - 1]
    assert {position_after(x) for x in numbers[:-2]} == {'"2"'}
    assert [position_after(x) for x in numbers[-2:]] == ['"3"', '"4"']


def test_the_sequence_of_a_change_written_alone_is_frozen() -> None:
    assert sequences([1, 7052]) == [131_071, 462_225_407]
    assert sequences([7052, 7052]) == [462_159_872, 462_225_407]


@pytest.mark.parametrize(
    ("token", "lsn"),
    [
        ("0:12", 12),
        ("0:-1#12", 12),
        ("3:1#12", 12),
        ("3:1#12#1=7#2=13", 12),
        ("", None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_the_newest_lsn_is_read_from_session_tokens_of_both_versions(
    token: str | None, lsn: int | None
) -> None:
    assert session_lsn(token) == lsn


def test_the_clients_token_holds_one_range_and_one_position() -> None:
    token = client_token(position(4), container_rid="rid=", mode="M", low="", high="1F")
    bounds = {"min": "", "max": "1F", "isMinInclusive": True, "isMaxInclusive": False}
    assert json.loads(base64.b64decode(token)) == {
        "v": "v2",
        "containerRid": "rid=",
        "mode": "M",
        "startFrom": {"Type": "Beginning"},
        "continuation": {
            "v": "v2",
            "rid": "rid=",
            "continuation": [{"token": '"4"', "range": bounds}],
            "Range": bounds,
        },
    }
