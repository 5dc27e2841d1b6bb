"""Where records lie once they are compacted: names, and the format."""

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.names import run_of, segment_key, segments_prefix
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import PartitionEnd
from changefeed.log.format.pack import encode_pack
from changefeed.log.format.runs import Run, decode_run
from changefeed.log.format.segment_file import RowGroup, Segment, Slice

P1 = RangeId("e1.p01.v00-ff")


@pytest.mark.parametrize(
    ("broker", "first"), [("a", 1), ("a-b", 65), ("a-000000000001", 65), ("0", 10**11)]
)
def test_whose_a_segment_is_can_be_read_in_its_name(broker: str, first: int) -> None:
    key = segment_key(segments_prefix("orders", 3, broker, first), b"data")
    assert run_of(key) == (3, broker, first)
    assert run_of(key.replace(".parquet", ".parquet.part")) is None


def slice_of(first: int, count: int) -> Slice:
    return Slice(range_id=P1, first=first, count=count, latest_us=5)


RUN = Run(
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
            key="segments/orders/1",
            groups=(
                RowGroup(end=300, crc=1, slices=(slice_of(11, 5),)),
                RowGroup(end=700, crc=2, slices=(slice_of(16, 5),)),
            ),
            size=1_000,
            is_text=True,
            tail_crc=3,
        ),
    ),
)


@pytest.mark.parametrize(
    "other",
    [
        replace(RUN, cluster="d" * 32),
        replace(RUN, era=4),
        replace(RUN, broker="broker-2"),
        replace(RUN, first=1),
        replace(RUN, last=64),
        replace(RUN, segments=(replace(RUN.segments[0], groups=()),)),
        replace(RUN, segments=(replace(RUN.segments[0], size=700),)),
    ],
)
def test_what_belongs_elsewhere_or_cannot_be_is_refused(other: Run) -> None:
    with pytest.raises(Damaged):
        decode_run(encode_pack(other), RUN.cluster, RUN.place)
