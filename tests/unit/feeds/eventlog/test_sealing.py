"""What of a log is sealed, and that a segment gives back what went into it."""

from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.feeds.eventlog.block_format import Layout, joined, lay_out
from changefeed.feeds.eventlog.records import Record, encode_record
from changefeed.feeds.eventlog.sealing import Block, SealPolicy, Unsealed, goal, pieces
from changefeed.feeds.eventlog.segment_rows import Group, Segment, SegmentDamaged, SegmentFile
from changefeed.feeds.eventlog.segments import (
    Records,
    read_segment,
    sequence_before,
    write_segment,
)
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Operation, RangeId

RANGE = RangeId("e1.p00.v00-ff")


def unsealed(*, closed: bool = False, aged: int = 0) -> Unsealed:
    return Unsealed(
        partition=1, sealed=100, last=1000, full=900, stored=5000, closed=closed, aged=aged
    )


@pytest.mark.parametrize(
    ("policy", "found", "up_to"),
    [
        (SealPolicy(), unsealed(closed=True, aged=500), 100),
        (SealPolicy(everything=True), unsealed(), 1000),
        (SealPolicy(closed=True), unsealed(), 100),
        (SealPolicy(closed=True), unsealed(closed=True), 1000),
        (SealPolicy(older_than=1), unsealed(aged=500), 500),
        (SealPolicy(older_than=1), unsealed(aged=0), 100),
        (SealPolicy(larger_than=5001), unsealed(), 100),
        (SealPolicy(larger_than=5000), unsealed(), 900),
        (SealPolicy(larger_than=5000), unsealed(closed=True), 1000),
        (SealPolicy(larger_than=5000, older_than=1), unsealed(aged=950), 950),
    ],
)
def test_a_range_is_sealed_as_far_as_the_policy_says(
    policy: SealPolicy, found: Unsealed, up_to: int
) -> None:
    assert goal(policy, found) == up_to


@given(
    sizes=st.lists(st.integers(1, 50), max_size=30),
    most=st.integers(1, 200),
    wanted=st.integers(0, 40),
)
def test_segments_hold_all_blocks_up_to_the_goal_in_order_and_no_more_than_they_may(
    sizes: list[int], most: int, wanted: int
) -> None:
    blocks = [
        Block(first=10 * n + 1, last=10 * n + 10, stored=7 + sum(sizes[: n + 1]))
        for n in range(len(sizes))
    ]
    found = list(pieces(blocks, 7, 10 * wanted + 5, most))
    sealed = [n for first, last in found for n in range(first, last + 1)]
    assert sealed == [*range(1, 10 * min(wanted, len(sizes)) + 1)]
    for first, last in found:
        inside = sizes[first // 10 : last // 10]
        assert sum(inside) <= most or len(inside) == 1


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
BODIES = st.one_of(st.just(b""), st.just(b"{}"), st.binary(max_size=8), TEXTS.map(str.encode))
SOME_TIME = st.integers(0, 20)
RECORDS = st.builds(
    Record,
    key=TEXTS,
    body=BODIES,
    id=st.none() | TEXTS,
    operation=st.sampled_from(Operation),
    previous=st.none() | BODIES,
    committed_us=st.integers(MIN_TIME_US, MAX_TIME_US),
)


def laid(records: list[Record]) -> Layout:
    return lay_out([encode_record(x, 0) for x in records])


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=1, max_size=3),
    first=st.integers(1, 1000),
    batch=st.integers(1, 6),
    data=st.data(),
)
def test_what_is_read_of_a_segment_from_any_position_is_what_was_written(
    groups: list[list[Record]], first: int, batch: int, data: st.DataObject
) -> None:
    begins = [first + sum(map(len, groups[:n])) for n in range(len(groups))]
    given_groups = [
        Records(first=begin, latest_us=0, layout=laid(x))
        for begin, x in zip(begins, groups, strict=True)
    ]
    file, flat = BytesIO(), [x for group in groups for x in group]
    found = write_segment(file, RANGE, lambda: (x for x in given_groups))
    assert (found.first, found.last) == (first, first + len(flat) - 1)
    assert found.size == len(file.getvalue())
    wanted = data.draw(st.integers(found.first, found.last))
    got = list(read_segment(file, found, wanted, batch))
    assert [x for y in got for x in range(y.first, y.first + y.count)] == [
        *range(wanted, found.last + 1)
    ]
    begin = got[0].first - got[0].skip
    assert joined(x.layout for x in got) == laid(flat[begin - first :])


def test_a_segment_with_fewer_changes_than_its_row_says_is_damaged() -> None:
    file, layout = BytesIO(), laid([Record(key="k")] * 3)
    group = Records(first=11, latest_us=0, layout=layout)
    found = write_segment(file, RANGE, lambda: (x for x in [group]))
    more = replace(found, groups=(found.groups[0]._replace(last=14),))
    got = read_segment(file, more, 11, batch=10)
    assert next(got).count == 3
    with pytest.raises(SegmentDamaged, match="changes are missing"):
        next(got)


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(
        st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    wanted=SOME_TIME,
)
def test_a_time_leads_to_the_first_change_at_or_after_it_though_clocks_go_back(
    times: list[list[int]], wanted: int
) -> None:
    flat = [x for group in times for x in group]
    groups, begin = [], 0
    for group in times:
        layout = laid([Record(key="k", committed_us=x) for x in group])
        latest = max(flat[: begin + len(group)])
        groups.append(Records(first=begin + 1, latest_us=latest, layout=layout))
        begin += len(group)
    if max(flat) < wanted:
        return
    file = BytesIO()
    found = write_segment(file, RANGE, lambda: (x for x in groups))
    expected = next(n for n, x in enumerate(flat) if x >= wanted)
    assert sequence_before(file, found, wanted) == expected


SEGMENT = Segment(
    partition=3,
    stored=5000,
    file=SegmentFile(
        first=11,
        groups=(Group(20, 7, 400, 1), Group(25, 9, 600, 2**32 - 1)),
        size=800,
        is_text=True,
        tail_crc=12,
    ),
)


def test_the_row_of_a_segment_is_what_it_always_was() -> None:
    groups = bytes.fromhex(
        "1400000000000000070000000000000090010000000000000100000019000000000000000900000000000000"
        "5802000000000000ffffffff"
    )
    assert SEGMENT.row == (3, 11, 25, 9, 5000, 800, 1, 12, groups, 1745123866)
    assert Segment.of(SEGMENT.row) == SEGMENT
    assert SEGMENT.file.name() == "11-25.parquet"
    assert [SEGMENT.file.group_of(x) for x in (11, 20, 21, 25)] == [0, 0, 1, 1]
    assert [SEGMENT.file.bounds(x) for x in (0, 1)] == [(11, 20), (21, 25)]


@pytest.mark.parametrize("place", range(10))
def test_a_number_that_was_changed_in_the_row_of_a_segment_is_noticed(place: int) -> None:
    row = list(SEGMENT.row)
    row[place] = row[place][:-1] + b"\x00" if place == 8 else row[place] ^ 1
    with pytest.raises(SegmentDamaged):
        Segment.of(row)
    row[place] = None
    with pytest.raises(SegmentDamaged):
        Segment.of(row)
