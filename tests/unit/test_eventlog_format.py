"""What is frozen in the event log's files. If one of these fails, old logs are misread.

The vectors were computed once and written down. Do not adjust them: make a new format.
"""

import pytest

from feeds.errors import FeedRefused
from feeds.eventlog.hashing import place_of
from feeds.eventlog.positions import position, range_id, sequence_of
from feeds.eventlog.records import Record, decode_changes, encode_record
from feeds.feed import Change, Continuation, Operation, RangeId

IDENTITY = "0123456789abcdef0123456789abcdef"
RANGE = RangeId("e1.p03.v00-ff")


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("", (5, 202)),
        ("a", (6, 39)),
        ("order-1", (3, 86)),
        ("Zürich", (8, 144)),
        ("日本語", (0, 124)),
        ("🦆", (6, 158)),
    ],
)
def test_a_key_stays_in_its_part_and_virtual_part_for_good(
    key: str, place: tuple[int, int]
) -> None:
    assert place_of(key, 12) == place


def test_a_hash_spreads_keys_over_parts_and_virtual_parts() -> None:
    places = [place_of(f"key-{n}", 12) for n in range(48_000)]
    for part in range(12):
        assert 3_700 < sum(x == part for x, _ in places) < 4_300
    assert {x for _, x in places} == set(range(256))
    assert len(set(places)) == 12 * 256


def test_half_a_surrogate_pair_has_no_place() -> None:
    with pytest.raises(UnicodeEncodeError):
        place_of("\ud83e", 12)


def test_ranges_and_positions_are_written_the_way_leases_keep_them() -> None:
    assert range_id(era=1, part=3, low=0, high=255) == "e1.p03.v00-ff"
    assert range_id(era=12, part=107, low=128, high=191) == "e12.p107.v80-bf"
    assert position(IDENTITY, 17) == "01234567/17"
    assert sequence_of(Continuation("01234567/17"), IDENTITY) == 17


def test_a_position_of_a_log_that_was_made_anew_is_refused_with_advice() -> None:
    with pytest.raises(FeedRefused, match=r"made anew.*Reset the leases"):
        sequence_of(Continuation("76543210/17"), IDENTITY)


PLAIN = Record(key="k", body=b"{}", committed_us=1)
FULL = Record(
    key="k",
    id="i",
    body=b"{}",
    operation=Operation.REPLACE,
    previous=b"[]",
    committed_us=1_767_225_600_000_000,
)
PLAIN_BYTES = bytes.fromhex("96a16bc000c4027b7d01c0")
FULL_BYTES = bytes.fromhex("96a16ba16901c4027b7dcf0006474846204000c4025b5d")


def test_records_are_written_as_they_always_were() -> None:
    assert encode_record(PLAIN, 9) == (1, PLAIN_BYTES)
    assert encode_record(FULL, 9) == (1_767_225_600_000_000, FULL_BYTES)


def test_blocks_written_once_are_read_for_good_even_with_fields_of_later_versions() -> None:
    later = bytes.fromhex("97a16bc002c40002c0a0")  # a delete, and a seventh field
    changes = decode_changes(RANGE, 41, [PLAIN_BYTES + FULL_BYTES, later], 3)
    assert changes == [
        Change(
            range_id=RANGE,
            sequence=41,
            key="k",
            id="k",
            operation=Operation.INSERT,
            body=b"{}",
            committed_us=1,
        ),
        Change(
            range_id=RANGE,
            sequence=42,
            key="k",
            id="i",
            operation=Operation.REPLACE,
            body=b"{}",
            committed_us=1_767_225_600_000_000,
            previous=b"[]",
        ),
        Change(
            range_id=RANGE,
            sequence=43,
            key="k",
            id="k",
            operation=Operation.DELETE,
            body=b"",
            committed_us=2,
        ),
    ]


@pytest.mark.parametrize("count", [1, 3], ids=["too much", "too little"])
def test_a_block_that_does_not_hold_what_it_says_is_damage(count: int) -> None:
    with pytest.raises(FeedRefused, match="damaged"):
        decode_changes(RANGE, 1, [PLAIN_BYTES + FULL_BYTES], count)


def test_a_record_without_a_time_gets_that_of_the_append() -> None:
    assert encode_record(Record(key="k"), 9)[0] == 9


@pytest.mark.parametrize(
    "record",
    [Record(key="k", body=b"x" * (16 << 20)), Record(key="k", committed_us=2**63)],
    ids=["too large", "no time"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(record: Record) -> None:
    with pytest.raises(FeedRefused):
        encode_record(record, 0)
