"""The format of what brokers write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.brokers.flush import (
    FlushDamaged,
    FlushHeader,
    LastBatch,
    NewSection,
    PartitionEnd,
    Place,
    Reached,
    StoredBatch,
    decode_header,
    encode_flush,
    ends_after,
    section_columns,
)
from changefeed.feeds.eventlog.block_format import Layout
from changefeed.feeds.feed import RangeId

PLACE = Place(2, "broker-1", 7)
CLUSTER = "0123456789abcdef0123456789abcdef"


def header(number: int = 7, table: tuple[PartitionEnd, ...] | None = None) -> FlushHeader:
    return FlushHeader(
        cluster=CLUSTER,
        era=2,
        broker="broker-1",
        incarnation="i",
        number=number,
        written_us=5,
        table=table,
    )


def read_all(data: bytes) -> None:
    for section in decode_header(data, CLUSTER, PLACE).sections:
        section_columns(data, section)


SECTION = NewSection(
    collection="orders",
    partition=RangeId("e2.p01.v00-ff"),
    first=3,
    count=1,
    latest_us=9,
    stored=30,
    batches=(StoredBatch("p", 3, 1),),
    columns=Layout(b"\0", bytes(8), b"\1\0\0\0", b"a", b"", b"", bytes(4), b"", b"", b""),
    checks=(17,),
)

layouts = st.builds(Layout, *[st.binary(max_size=40)] * 10)
sections = st.builds(
    NewSection,
    collection=st.sampled_from(["orders", "users"]),
    partition=st.sampled_from([RangeId("e2.p01.v00-ff"), RangeId("e2.p02.v00-7f")]),
    first=st.integers(1, 2**60),
    count=st.just(0),
    latest_us=st.integers(-(2**62), 2**62),
    stored=st.integers(0, 2**60),
    batches=st.lists(
        st.builds(StoredBatch, st.text(max_size=8), st.integers(1, 2**60), st.integers(1, 9))
    ).map(tuple),
    columns=layouts,
    checks=st.just(()),
).map(
    lambda x: replace(x, count=sum(y.records for y in x.batches), checks=(17,) * len(x.batches))
)


@given(st.lists(sections, min_size=1, max_size=3), st.data())
def test_one_wrong_byte_is_seen(new: list[NewSection], draw: st.DataObject) -> None:
    data = bytearray(encode_flush(header(), new))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(FlushDamaged):
        read_all(bytes(data))


@given(st.lists(sections, min_size=1, max_size=3), st.data())
def test_an_object_that_is_cut_off_is_seen(new: list[NewSection], draw: st.DataObject) -> None:
    whole = encode_flush(header(), new)
    data = whole[: draw.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(FlushDamaged):
        read_all(data)


@pytest.mark.parametrize(
    "place", [Place(3, "broker-1", 7), Place(2, "broker-2", 7), Place(2, "broker-1", 8)]
)
def test_an_object_that_lies_elsewhere_than_it_was_written_is_none(place: Place) -> None:
    with pytest.raises(FlushDamaged, match="it was written as number 7 of broker 'broker-1'"):
        decode_header(encode_flush(header()), CLUSTER, place)


def test_an_object_of_another_cluster_is_none() -> None:
    with pytest.raises(FlushDamaged, match="cluster 01234567"):
        decode_header(encode_flush(header()), "f" * 32, PLACE)


def test_the_bytes_of_a_flush_are_frozen() -> None:
    assert encode_flush(header(65, ()), [SECTION]) == FROZEN


def test_the_end_of_a_partition_has_the_last_five_batches_of_each_producer() -> None:
    headers = []
    section = decode_header(FROZEN, CLUSTER, Place(2, "broker-1", 65)).sections[0]
    for n in range(1, 9):
        batches = (StoredBatch("p", n, 1), StoredBatch(f"q{n}", 1, 2))
        one = replace(section, batches=batches, checks=(n, 100 + n))
        first = header(64 + n, () if n == 1 else None)
        headers.append(replace(first, sections=(one,)))
    (end,) = ends_after(headers).values()
    assert end.batches_of("p") == tuple(LastBatch(n, 1, n) for n in range(4, 9))
    assert end.batches_of("q3") == (LastBatch(1, 2, 103),)
    table = header(129, (end,))
    assert decode_header(encode_flush(table), CLUSTER, table.place).table == (end,)
    assert ends_after([table]) == ends_after(headers)


def test_what_holds_after_objects_is_the_last_table_and_what_came_since() -> None:
    p1, p2 = RangeId("e2.p01.v00-ff"), RangeId("e2.p02.v00-ff")
    before = PartitionEnd(
        collection="orders",
        partition=p1,
        last=4,
        latest_us=2,
        stored=7,
        written_us=1,
        producers=(Reached("a", 3, 1), Reached("b", 1, 1)),
        last_batches=((LastBatch(3, 1, 17),), (LastBatch(1, 1, 17),)),
    )
    two, one = StoredBatch("a", 4, 2), StoredBatch("a", 1, 1)
    first = replace(SECTION, partition=p1, first=5, count=2, stored=50, batches=(two,))
    second = replace(SECTION, partition=p2, first=1, count=1, batches=(one,))
    flushes = [
        encode_flush(header(65, (before,)), [first]),
        encode_flush(header(66), [second]),
    ]
    ends = ends_after(
        decode_header(x, CLUSTER, Place(2, "broker-1", 65 + n)) for n, x in enumerate(flushes)
    )
    found = ends["orders", p1]
    assert (found.last, found.stored, found.written_us) == (6, 50, 5)
    assert {(x.producer, x.sequence) for x in found.producers} == {("a", 5), ("b", 1)}
    assert (ends["orders", p2].last, ends["orders", p2].producers) == (1, (Reached("a", 1, 5),))


FROZEN = (
    b"CFWAL1\r\ng\x00\x00\x00X\xb2-\x1e\x99\xd9 0123456789abcdef0123456789abcdef\x02\xa8broker-"
    b"1\xa1iA\x05\xc2\x90\x91\x9b\xa6orders\xade2.p01.v00-ff\x03\x01\t\x1e\x91\x93\xa1p\x03\x01\x00\x9a\x01\x08\x04\x01\x00\x00\x04\x00\x00\x00\xce\xd42\x85\xf3"
    b"\x91\x11\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00a\x00\x00\x00\x00"
)
