"""Where records lie once they are compacted: names, what covers what, and the format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.brokers.compacted import (
    CompactedRun,
    Segment,
    SegmentBounds,
    bounds_of,
    covering,
    decode_run,
    encode_run,
)
from changefeed.feeds.brokers.flush import FlushDamaged, PartitionEnd
from changefeed.feeds.brokers.names import segments_prefix
from changefeed.feeds.eventlog.segment_file import Group
from changefeed.feeds.feed import RangeId

P1 = RangeId("e1.p01.v00-ff")

segments = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 30)).map(
        lambda x: SegmentBounds(x[0], x[0] + x[1])
    ),
    max_size=8,
)


@given(segments, st.integers(1, 60), st.integers(0, 90))
def test_slices_follow_each_other_from_the_first_record_wanted_to_the_last(
    found: list[SegmentBounds], first: int, last: int
) -> None:
    slices = covering(found, first, last)
    assert [y for x in slices for y in range(x.first, x.last + 1)] == [*range(first, last + 1)]


@pytest.mark.parametrize(
    "name",
    ["1-9.parquet", f"{9:019}-{1:019}.parquet", f"{0:019}-{1:019}.parquet", f"{1:019}.parquet"],
)
def test_what_is_no_name_of_a_segment_is_none(name: str) -> None:
    assert bounds_of(segments_prefix("orders", P1) + name) is None


RUN = CompactedRun(
    cluster="c" * 32,
    era=3,
    broker="broker-1",
    first=65,
    last=128,
    written_us=17,
    final=False,
    ends=(PartitionEnd(collection="orders", partition=P1, last=20, latest_us=5, stored=900),),
    segments=(
        Segment(
            collection="orders",
            partition=P1,
            first=11,
            groups=(Group(15, 4, 300, 1), Group(20, 5, 700, 2)),
            size=1_000,
            is_text=True,
            tail_crc=3,
            stored=900,
        ),
    ),
)


@given(st.integers(0, len(encode_run(RUN)) - 1), st.integers(1, 255))
def test_a_byte_that_is_another_is_noticed(place: int, other: int) -> None:
    data = bytearray(encode_run(RUN))
    data[place] ^= other
    with pytest.raises(FlushDamaged):
        decode_run(bytes(data), RUN.cluster, 3, "broker-1", 65)


@given(st.integers(0, len(encode_run(RUN)) - 1))
def test_one_that_is_cut_off_is_noticed(size: int) -> None:
    with pytest.raises(FlushDamaged):
        decode_run(encode_run(RUN)[:size], RUN.cluster, 3, "broker-1", 65)


@pytest.mark.parametrize(
    "other",
    [
        replace(RUN, cluster="d" * 32),
        replace(RUN, era=4),
        replace(RUN, broker="broker-2"),
        replace(RUN, first=1),
        replace(RUN, last=64),
        replace(RUN, segments=(replace(RUN.segments[0], groups=()),)),
    ],
)
def test_what_belongs_elsewhere_or_cannot_be_is_refused(other: CompactedRun) -> None:
    with pytest.raises(FlushDamaged):
        decode_run(encode_run(other), RUN.cluster, 3, "broker-1", 65)
