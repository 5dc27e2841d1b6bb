"""What is frozen in the event log's files. If one of these fails, old logs are misread.

The vectors were computed once and written down. Do not adjust them: make a new format.
"""

from collections.abc import Sequence
from itertools import permutations

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Operation, Position, RangeId
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import BlockChanges, Layout, joined, lay_out
from changefeed.log.hashing import place_of
from changefeed.log.ids import position, range_id, sequence_of
from changefeed.log.records import Record, encode_record
from tests.support import make

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


def test_ranges_and_positions_are_written_the_way_leases_keep_them() -> None:
    assert range_id(era=1, part=3, low=0, high=255) == "e1.p03.v00-ff"
    assert range_id(era=12, part=107, low=128, high=191) == "e12.p107.v80-bf"
    assert position(IDENTITY, 17) == "01234567/17"
    assert sequence_of(Position("01234567/17"), IDENTITY) == 17


def test_a_position_of_a_log_that_was_recreated_is_refused_with_advice() -> None:
    with pytest.raises(FeedRefused, match=r"recreated.*Reset the leases"):
        sequence_of(Position("76543210/17"), IDENTITY)


PLAIN = Record(key="k", body=b"{}", committed_us=1)
FULL = Record(
    key="é",
    id="i",
    body=b"[1]",
    operation=Operation.REPLACE,
    previous=b"[]",
    committed_us=1_767_225_600_000_000,
)
DELETE = Record(key="k", operation=Operation.DELETE, committed_us=-2)
LAID_OUT = Layout(
    kinds=bytes.fromhex("000d02"),
    times=bytes.fromhex("0100000000000000" + "0040204648470600" + "feffffffffffffff"),
    key_sizes=bytes.fromhex("01000000" + "02000000" + "01000000"),
    keys=bytes.fromhex("6bc3a96b"),
    id_sizes=bytes.fromhex("01000000"),
    ids=b"i",
    body_sizes=bytes.fromhex("02000000" + "03000000" + "00000000"),
    bodies=b"{}[1]",
    previous_sizes=bytes.fromhex("02000000"),
    previous=b"[]",
)
CHANGES = [
    make.change(41, item="k", body=b"{}", range_id=RANGE, committed_us=1),
    make.change(
        42,
        key="é",
        item="i",
        operation=Operation.REPLACE,
        body=b"[1]",
        range_id=RANGE,
        committed_us=1_767_225_600_000_000,
        previous=b"[]",
    ),
    make.change(
        43, item="k", operation=Operation.DELETE, body=b"", range_id=RANGE, committed_us=-2
    ),
]


def test_records_are_laid_out_as_they_always_were() -> None:
    encoded = [encode_record(x, 9) for x in (PLAIN, FULL, DELETE)]
    assert lay_out(encoded) == LAID_OUT
    assert sum(x[-1] for x in encoded) == sum(map(len, LAID_OUT))


def test_blocks_written_once_are_read_for_good() -> None:
    assert [*BlockChanges(RANGE, 41, 3, LAID_OUT).take(3)] == CHANGES


@pytest.mark.parametrize("looked_at", [*permutations(range(4))])
def test_pieces_of_a_block_have_their_changes_in_whatever_order_they_are_looked_at(
    looked_at: Sequence[int],
) -> None:
    uncut = BlockChanges(RANGE, 41, 3, LAID_OUT)
    pieces = [uncut.take(1), uncut.take(0)]
    assert (uncut.first, uncut.left) == (42, 2)
    pieces += [uncut.take(9), uncut.take(1)]
    assert (uncut.first, uncut.left, uncut.size) == (44, 0, 0)
    found = {n: [*pieces[n]] for n in looked_at}
    assert [found[n] for n in range(4)] == [CHANGES[:1], [], CHANGES[1:], []]
    assert [*map(len, pieces)] == [1, 0, 2, 0]
    assert (pieces[2][-1], [*pieces[2][:1]]) == (CHANGES[2], CHANGES[1:2])


def test_a_block_grows_by_appending_to_its_columns() -> None:
    parts = [lay_out([encode_record(x, 9)]) for x in (PLAIN, FULL, DELETE)]
    assert joined(parts) == LAID_OUT


@pytest.mark.parametrize("key", ["", "\r", "\r\n", "a\rb\n", "\x00", "é\r\n"])
def test_a_key_may_hold_any_sign(key: str) -> None:
    layout = lay_out(
        [encode_record(Record(key=x, id=y), 9) for x, y in ((key, "i"), ("k", key))]
    )
    changes = BlockChanges(RANGE, 1, 2, layout).take(2)
    assert [(x.key, x.id) for x in changes] == [(key, "i"), ("k", key)]


@pytest.mark.parametrize(
    ("count", "damage"),
    [
        (2, {}),
        (4, {}),
        (3, {"kinds": b"\0\0"}),
        (3, {"kinds": b"\0\x0d\x03"}),  # there is no fourth operation
        (3, {"kinds": b"\0\x0d\x06"}),  # an id more than there are
        (3, {"kinds": b"\0\x0d\x0a"}),  # an image more
        (3, {"times": LAID_OUT.times[:-1]}),
        (3, {"keys": b"k"}),
        (3, {"keys": b"k\xff\xffk"}),
        (3, {"key_sizes": LAID_OUT.key_sizes[4:]}),
        (3, {"bodies": b"{}[1]x"}),
        (3, {"body_sizes": LAID_OUT.body_sizes + b"\0\0\0\0"}),
        (3, {"previous": b""}),
    ],
)
def test_a_block_that_does_not_hold_what_it_says_is_damage(
    count: int, damage: dict[str, bytes]
) -> None:
    with pytest.raises(Damaged):
        BlockChanges(RANGE, 1, count, LAID_OUT._replace(**damage)).take(count)


@pytest.mark.parametrize(
    "record",
    [
        Record(key="k", body=b"x" * (16 << 20)),
        Record(key="k", committed_us=MAX_TIME_US + 1),
        Record(key="k", committed_us=MIN_TIME_US - 1),
    ],
    ids=["too large", "after all time", "before all time"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(record: Record) -> None:
    with pytest.raises(FeedRefused):
        encode_record(record, 0)
